"""/healthz: whether this node does its work (NATS monitoring, `HealthStatus`)."""

from collections.abc import Collection, Iterator
from typing import Any, cast

import msgspec

from headwater.edge.jetstream.model.times import format_time
from headwater.edge.monitor.pages.jsz import enabled_accounts
from headwater.edge.monitor.pages.links import links
from headwater.edge.monitor.query import Query
from headwater.edge.storage.format.problem import Problem
from headwater.edge.view.node_view import NodeView

PROBLEMS_MAX = 100
"""Problems of storage that one answer lists."""
LINKS_MAX = 100
"""Mirrors and sources in trouble that one answer lists."""
OK, BAD_REQUEST, NOT_FOUND, UNAVAILABLE = 200, 400, 404, 503


class HealthzOptions(msgspec.Struct, kw_only=True):
    """What a request asks for; names as in `$SYS.REQ.SERVER.*.HEALTHZ`."""

    js_enabled: bool = msgspec.field(default=False, name="js-enabled")
    js_enabled_only: bool = msgspec.field(default=False, name="js-enabled-only")
    js_server_only: bool = msgspec.field(default=False, name="js-server-only")
    js_meta_only: bool = msgspec.field(default=False, name="js-meta-only")
    account: str = ""
    stream: str = ""
    consumer: str = ""
    details: bool = False
    links: bool = False
    """Headwater's own: a mirror or source in trouble makes the node unhealthy."""

    @classmethod
    def from_query(cls, query: Query) -> "HealthzOptions":
        """From HTTP parameters. Raises MonitorError."""
        return cls(
            js_enabled=query.flag("js-enabled"),
            js_enabled_only=query.flag("js-enabled-only"),
            js_server_only=query.flag("js-server-only"),
            js_meta_only=query.flag("js-meta-only"),
            details=query.flag("details"),
            links=query.flag("links"),
            account=query.text("account"),
            stream=query.text("stream"),
            consumer=query.text("consumer"),
        )


class HealthError(msgspec.Struct, omit_defaults=True):
    """Something that is wrong, in the shape of `HealthzError`."""

    type: str
    account: str = ""
    stream: str = ""
    consumer: str = ""
    error: str = ""


def healthz(node: NodeView, options: HealthzOptions | None = None) -> dict[str, Any]:
    """The answer; `status_code` is the HTTP status."""
    wanted = options or HealthzOptions()
    code, problems = _examine(node, wanted)
    answer: dict[str, Any] = {"status": "ok", "status_code": code}
    if wanted.details:
        if problems:
            answer["status"] = "error"
            answer["errors"] = [msgspec.to_builtins(problem) for problem in problems]
    elif problems:
        answer["status"] = "error" if code == BAD_REQUEST else "unavailable"
        answer["error"] = problems[0].error
    degraded = {**_damage(node), **_links(node), **_leafs(node)}
    if degraded and not wanted.js_server_only:
        answer["headwater"] = {"degraded": True, **degraded}
    return answer


def _links(node: NodeView) -> dict[str, Any]:
    """Mirrors and sources in trouble; empty when there are none."""
    bad = [each for each in links(node, "origins") if not each["well"]]
    shown = ("account", "stream", "kind", "origin", "state", "cause")
    listed = [{name: each[name] for name in shown} for each in bad[:LINKS_MAX]]
    return {"links": listed} if listed else {}


def _leafs(node: NodeView) -> dict[str, Any]:
    """Leaf links whose peer wants more than this node keeps; empty when there are none."""
    listed = []
    for leaf in links(node, "leafs"):
        if cause := leaf["headwater"]["interest"]["cause"]:
            listed.append({"account": leaf["account"], "name": leaf["name"], "cause": cause})
    return {"leafs": listed[:LINKS_MAX]} if listed else {}


def _damage(node: NodeView) -> dict[str, Any]:
    """What storage has lost or put aside, empty when all is well. A node with such damage goes on
    serving everything else, so it stays healthy for whoever looks at the status only."""
    storage = None if node.jetstream is None else node.jetstream.storage
    if storage is None:
        return {}
    found = {
        "lost_messages": storage.lost,
        "quarantined": storage.quarantined,
        "problems": [_shown(problem) for problem in storage.problems[:PROBLEMS_MAX]],
    }
    shown: dict[str, Any] = {name: value for name, value in found.items() if value}
    return shown


def _shown(problem: Problem) -> dict[str, Any]:
    """A problem of storage: kind, stream, file, text, and since when it is known."""
    return {**problem.fields(), "since": format_time(problem.since)}


def _examine(node: NodeView, options: HealthzOptions) -> tuple[int, list[HealthError]]:
    for given, needed, what in (
        (options.stream, options.account, ("account", "stream")),
        (options.consumer, options.stream, ("stream", "consumer")),
    ):
        if given and not needed:
            text = f'"{what[0]}" must not be empty when checking {what[1]} health'
            return BAD_REQUEST, [HealthError("BAD_REQUEST", error=text)]
    if options.js_server_only or not node.options.jetstream.enabled:
        return OK, []
    if node.jetstream is None:
        text = "JetStream not enabled"
        return UNAVAILABLE, [HealthError("JETSTREAM", error=text)]
    if options.js_enabled or options.js_enabled_only:
        return OK, []
    view = node.jetstream.cluster_view
    if view is not None:
        meta = [text for text in view.health() if text.startswith("JetStream")]
        if meta or options.js_meta_only:
            return (UNAVAILABLE if meta else OK), [HealthError("JETSTREAM", error=t) for t in meta]
    elif options.js_meta_only:
        return OK, []
    missing = _missing(node, options)
    if missing is not None:
        return NOT_FOUND, [missing]
    problems = list(_store_problems(node))
    if options.links:
        problems.extend(_link_problems(node))
    return (UNAVAILABLE if problems else OK), problems


def _link_problems(node: NodeView) -> Iterator[HealthError]:
    """Mirrors and sources in trouble."""
    for each in _links(node).get("links", []):
        text = (
            f"JetStream {each['kind']} '{each['origin']}' of stream '{each['account']} > "
            f"{each['stream']}' is {each['state']}: {each['cause']}"
        )
        yield HealthError("STREAM", each["account"], each["stream"], error=text)


def _missing(node: NodeView, options: HealthzOptions) -> HealthError | None:
    """What the request names and this node does not have."""
    account, stream, consumer = options.account, options.stream, options.consumer
    if not account:
        return None
    js = enabled_accounts(node).get(account)
    if js is None:
        return HealthError("ACCOUNT", account, error=f'JetStream account "{account}" not found')
    if not stream:
        return None
    consumers = _consumers(node, js, account, stream)
    if consumers is None:
        text = f'JetStream stream "{stream}" not found on account "{account}"'
        return HealthError("STREAM", account, stream, error=text)
    if consumer and consumer not in consumers:
        text = (
            f'JetStream consumer "{consumer}" not found for stream "{stream}" '
            f'on account "{account}"'
        )
        return HealthError("CONSUMER", account, stream, consumer, text)
    return None


def _consumers(node: NodeView, js: Any, account: str, stream: str) -> Collection[str] | None:
    """Names of a stream's consumers, by the stream or by this node's replica of it; None when the
    node has neither."""
    here = js.streams.get(stream)
    if here is not None:
        return cast(Collection[str], here.consumers)
    view = node.jetstream.cluster_view
    return cast(Collection[str] | None, view.followed(account, stream)) if view else None


def _store_problems(node: NodeView) -> Iterator[HealthError]:
    """What keeps storage from taking writes, and streams of a cluster from being served."""
    view = node.jetstream.cluster_view
    for text in view.health() if view is not None else ():
        yield HealthError("STREAM", error=f"JetStream {text}")
    for account, stream in node.jetstream.idle_replicas:
        text = f"JetStream stream '{account} > {stream}' could not be recovered"
        yield HealthError("STREAM", account, stream, error=text)
    log = getattr(node.jetstream.storage, "log", None)
    failure = None if log is None else log.failure
    if failure is not None:
        yield HealthError("JETSTREAM", error=f"JetStream storage: {failure}")
