"""/jsz: JetStream on this node (NATS monitoring, `JSInfo`)."""

from collections.abc import Iterable
from typing import Any

import msgspec

from headwater.edge.facts.moments import nanoseconds, rfc3339
from headwater.edge.facts.version import API_LEVEL
from headwater.edge.monitor.errors import FilteredError, MonitorError
from headwater.edge.monitor.query import Query
from headwater.edge.monitor.steps import Steps, at_once
from headwater.edge.view.node_view import NodeView

LIMIT_DEFAULT = 1024
"""Accounts in one answer when the request names no limit."""


class JszOptions(msgspec.Struct, kw_only=True):
    """What a request asks for; names as in `$SYS.REQ.SERVER.*.JSZ`."""

    account: str = ""
    accounts: bool = False
    streams: bool = False
    consumer: bool = False
    direct_consumer: bool = False
    config: bool = False
    leader_only: bool = False
    offset: int = 0
    limit: int = 0
    raft: bool = False
    stream_leader_only: bool = False

    @classmethod
    def from_query(cls, query: Query) -> "JszOptions":
        """From HTTP parameters. Raises MonitorError."""
        return cls(
            account=query.text("acc"),
            accounts=query.flag("accounts"),
            streams=query.flag("streams"),
            consumer=query.flag("consumers"),
            direct_consumer=query.flag("direct-consumers"),
            config=query.flag("config"),
            leader_only=query.flag("leader-only"),
            offset=query.number("offset"),
            limit=query.number("limit"),
            raft=query.flag("raft"),
            stream_leader_only=query.flag("stream-leader-only"),
        )


class Shown(msgspec.Struct):
    """A stream that is on this node, and its consumers here; `cluster` is set where another node
    leads it."""

    stream: Any
    consumers: list[Any]
    cluster: Any = None


class Counts(msgspec.Struct):
    """What streams and consumers there are, and what they hold, as the page's fields have it."""

    streams: int = 0
    consumers: int = 0
    messages: int = 0
    bytes: int = 0

    def add(self, stream: Any, consumers: int) -> None:
        """Count a stream."""
        self.streams += 1
        self.consumers += consumers
        self.messages += stream.store.messages
        self.bytes += stream.store.bytes

    def fields(self) -> dict[str, int]:
        """For the page."""
        return msgspec.structs.asdict(self)


def jsz(node: NodeView, options: JszOptions | None = None) -> dict[str, Any]:
    """The answer; accounts, streams and consumers as far as they are asked for."""
    return at_once(jsz_steps(node, options))


def jsz_steps(node: NodeView, options: JszOptions | None = None) -> Steps[dict[str, Any]]:
    """The answer, in steps. Raises FilteredError and MonitorError."""
    wanted = options or JszOptions()
    identity = {"server_id": node.server_id, "now": rfc3339(node.kernel.wall_ns())}
    if node.jetstream is None:
        if wanted.leader_only:
            raise FilteredError
        return {**_stats([], 0, 0), **identity, "disabled": True, **Counts().fields(), "total": 0}
    enabled = enabled_accounts(node)
    every, led = yield from _count_all(node, enabled)
    if node.jetstream is None:
        return (yield from jsz_steps(node, options))
    answer: dict[str, Any] = {
        **node_stats(node),
        **identity,
        "config": node_config(node),
        "limits": node_limits(node),
        **every.fields(),
    }
    view = node.jetstream.cluster_view
    if view is not None:
        answer["meta_cluster"] = view.meta()
        answer["ha_assets"] = view.ha_assets()
        if wanted.leader_only and answer["meta_cluster"]["leader"] != node.server_name:
            raise FilteredError
    storage = node.jetstream.storage
    if storage is not None and (storage.lost or storage.quarantined):
        answer["headwater"] = {"lost": storage.lost, "quarantined": storage.quarantined}
    if wanted.raft:
        answer["streams_leader"] = led.streams
        answer["consumers_leader"] = led.consumers
    chosen = _chosen(enabled, wanted)
    if chosen:
        answer["account_details"] = yield from _details(node, chosen, wanted)
    answer["total"] = len(enabled)
    return answer


def enabled_accounts(node: NodeView) -> dict[str, Any]:
    """The JetStream of every account that has it, by account name."""
    if node.jetstream is None:
        return {}
    return {name: js for name, js in node.jetstream.accounts.items() if js.router is not None}


def allocated_bytes(node: NodeView, account: str, stream: str) -> int | None:
    """What a stream's files take on the device, 0 for one in memory; None when it is gone."""
    js = enabled(node, account)
    found = js.streams.get(stream) if js is not None else None
    return int(node.jetstream.storage.disk.stream_bytes(found.store)) if found is not None else None


def node_stats(node: NodeView) -> dict[str, Any]:
    """Use of memory and storage, and API requests, of all accounts together."""
    usage = node.jetstream.usage
    return _stats(enabled_accounts(node).values(), usage["memory"], usage["file"])


def _stats(accounts: Iterable[Any], memory: Any, file: Any) -> dict[str, Any]:
    found = list(accounts)
    return {
        "memory": memory.used if memory else 0,
        "storage": file.used if file else 0,
        "reserved_memory": memory.reserved if memory else 0,
        "reserved_storage": file.reserved if file else 0,
        "accounts": len(found),
        "ha_assets": 0,
        "api": {
            "level": API_LEVEL,
            "total": sum(js.api.total for js in found),
            "errors": sum(js.api.errors for js in found),
        },
    }


def node_config(node: NodeView) -> dict[str, Any]:
    """The node's JetStream configuration; limits are what was found to be available."""
    options = node.options.jetstream
    usage = node.jetstream.usage
    config: dict[str, Any] = {
        "max_memory": usage["memory"].limit,
        "max_storage": usage["file"].limit,
        "store_dir": str(node.jetstream.directory),
        "sync_interval": nanoseconds(options.sync_interval),
    }
    if options.max_memory_store > 0 and options.max_file_store > 0:
        config["compress_ok"] = True
    if options.sync_always:
        config["sync_always"] = True
    if options.domain:
        config["domain"] = options.domain
    if options.unique_tag:
        config["unique_tag"] = options.unique_tag
    if options.strict:
        config["strict"] = True
    return config


def node_limits(node: NodeView) -> dict[str, Any]:
    """Configured limits of JetStream; those that were not configured are left out."""
    limits = node.options.jetstream.limits
    fields = {
        "max_request_batch": limits.max_request_batch,
        "max_ack_pending": limits.max_ack_pending,
        "max_ha_assets": limits.max_ha_assets,
        "default_max_consumers": limits.default_max_consumers,
        "max_duplicate_window": nanoseconds(limits.duplicate_window),
        "max_batch_inflight_per_stream": limits.batch.max_inflight_per_stream,
        "max_batch_inflight_total": limits.batch.max_inflight_total,
        "max_batch_size": limits.batch.max_messages,
        "max_batch_timeout": nanoseconds(limits.batch.timeout),
    }
    return {name: value for name, value in fields.items() if value}


def _led(stream: Any) -> Shown:
    """A stream that this node leads, or has alone."""
    return Shown(stream, list(stream.consumers.values()))


def _count_all(node: NodeView, accounts: dict[str, Any]) -> Steps[tuple[Counts, Counts]]:
    """All streams on this node, and those of them that it leads."""
    every, led = Counts(), Counts()
    view = node.jetstream.cluster_view
    for account, js in accounts.items():
        for stream in js.streams.values():
            consumers = len(_consumers(_led(stream), direct=False))
            every.add(stream, consumers)
            led.add(stream, consumers)
        yield
        for name in view.replica_names(account) if view is not None else ():
            counted = view.count_replica(account, name)
            if counted is not None:
                every.add(*counted)
            yield
    return every, led


def _chosen(enabled: dict[str, Any], options: JszOptions) -> list[str]:
    if options.account in enabled:
        return [options.account]
    streams = options.streams or options.consumer
    if not options.accounts and not (streams and not options.account):
        return []
    limit = options.limit or LIMIT_DEFAULT
    names = sorted(enabled)[max(0, options.offset) :]
    return names[:limit] if limit > 0 else names


def detail_steps(node: NodeView, name: str, options: JszOptions) -> Steps[dict[str, Any]]:
    """One account that has JetStream, in steps. Raises MonitorError when it has not."""
    js = enabled(node, name)
    if js is None and name not in node.accounts:
        raise MonitorError(f'account "{name}" not found')
    if js is None:
        raise MonitorError(f"account {name!r} not jetstream enabled".replace("'", '"'))
    stats = _stats([js], js.usage["memory"], js.usage["file"])
    stats["accounts"] = 0
    stats["api"]["level"] = 0
    detail: dict[str, Any] = {"name": name, "id": name, **stats}
    if options.streams or options.consumer:
        found = yield from _stream_details(node, name, options)
        if found:
            detail["stream_detail"] = found
    return detail


def enabled(node: NodeView, name: str) -> Any:
    """The JetStream of an account; None where it has none now."""
    js = node.jetstream.accounts.get(name) if node.jetstream is not None else None
    return js if js is not None and js.router is not None else None


def _details(
    node: NodeView, chosen: list[str], options: JszOptions
) -> Steps[list[dict[str, Any]]]:
    details = []
    for name in chosen:
        if enabled(node, name) is not None:
            details.append((yield from detail_steps(node, name, options)))
        yield
    return details


def _stream_details(
    node: NodeView, account: str, options: JszOptions
) -> Steps[list[dict[str, Any]]]:
    """Streams that this node leads, then its replicas of others. Who goes meanwhile is left out."""
    view = node.jetstream.cluster_view
    names = dict.fromkeys(enabled(node, account).streams)
    if view is not None and not options.stream_leader_only:
        names |= dict.fromkeys(view.replica_names(account))
    details = []
    for name in names:
        here = _here(node, account, name, options)
        if here is not None:
            details.append((yield from _stream_detail(node, here, options)))
        yield
    return details


def _here(node: NodeView, account: str, name: str, options: JszOptions) -> Shown | None:
    """A stream as it is on this node now."""
    js = enabled(node, account)
    stream = js.streams.get(name) if js is not None else None
    if stream is not None:
        return _led(stream)
    view = node.jetstream.cluster_view if js is not None else None
    if view is None or options.stream_leader_only:
        return None
    found = view.replica(account, name)
    return Shown(*found) if found is not None else None


def _stream_detail(node: NodeView, here: Shown, options: JszOptions) -> Steps[dict[str, Any]]:
    from headwater.edge.jetstream.stream.stream_info import stream_info

    stream = here.stream
    info = msgspec.to_builtins(stream_info(stream, domain=node.options.jetstream.domain))
    detail: dict[str, Any] = {
        "name": stream.name,
        "created": info["created"],
        "cluster": {"leader": node.server_name},
    }
    info["state"]["consumer_count"] = len(_consumers(here, direct=False))
    if here.cluster is not None:
        detail["cluster"] = msgspec.to_builtins(here.cluster)
    elif node.jetstream.stream_cluster_info is not None:
        detail["cluster"] = msgspec.to_builtins(node.jetstream.stream_cluster_info(stream))
    group = detail["cluster"].get("raft_group", "")
    for field in ("config", "state", "mirror", "sources"):
        if field in info and (field != "config" or options.config):
            detail[field] = info[field]
    if options.consumer:
        shown = yield from _consumer_details(here, options, direct=False)
        if shown:
            detail["consumer_detail"] = shown
            if options.raft and group:
                rows = [{"name": row["name"], "raft_group": group} for row in shown]
                detail["consumer_raft_groups"] = rows
        if options.direct_consumer:
            direct = yield from _consumer_details(here, options, direct=True)
            if direct:
                detail["direct_consumer_detail"] = direct
    if options.raft and group:
        detail["stream_raft_group"] = group
    _strip_versions(detail.get("config"))
    return detail


def _strip_versions(config: dict[str, Any] | None) -> None:
    """Leave out what the JetStream API adds to metadata about the node that answers."""
    if config and "metadata" in config:
        for name in ("_nats.level", "_nats.ver"):
            config["metadata"].pop(name, None)


def _consumers(here: Shown, *, direct: bool) -> list[Any]:
    return [c for c in here.consumers if bool(c.config.direct) is direct]


def _consumer_details(
    here: Shown, options: JszOptions, *, direct: bool
) -> Steps[list[dict[str, Any]]]:
    from headwater.edge.jetstream.consumer.consumer_info import consumer_info

    details = []
    for consumer in _consumers(here, direct=direct):
        info = msgspec.to_builtins(consumer_info(consumer))
        if here.cluster is not None:
            info["cluster"] = msgspec.to_builtins(here.cluster)
        elif here.stream.node.consumer_cluster_info is not None:
            info["cluster"] = msgspec.to_builtins(here.stream.node.consumer_cluster_info(consumer))
        if not options.config:
            info.pop("config", None)
        _strip_versions(info.get("config"))
        details.append(info)
        if here.cluster is None:
            yield
            if not _is_led(here.stream):
                break
    return details


def _is_led(stream: Any) -> bool:
    """Whether a stream that this node led is still there, and led."""
    js = stream.account.jetstream
    return js is not None and js.streams.get(stream.name) is stream
