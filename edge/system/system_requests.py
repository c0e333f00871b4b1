"""Answers to `$SYS.REQ.*`: monitoring and small commands over NATS itself."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from typing import Any, TypeVar

import msgspec

from headwater.edge.conf.problems import ConfigError
from headwater.edge.jetstream.model.nulls import without_nulls
from headwater.edge.monitor import debugging
from headwater.edge.monitor.errors import FilteredError, MonitorError
from headwater.edge.monitor.pages import accountz, accstatz, connz, healthz, jsz, links, subsz, varz
from headwater.edge.monitor.pages.statsz import statsz
from headwater.edge.monitor.steps import PageMaker, Steps
from headwater.edge.view.encodings import accepted, encoded
from headwater.edge.view.node_view import NodeView
from headwater.edge.view.system_info import ServerInfo

log = logging.getLogger("headwater.system")

SERVER_ERROR = 500
BAD_REQUEST = 400

Options = TypeVar("Options", bound=msgspec.Struct)


class Filter(msgspec.Struct, kw_only=True):
    """Which nodes a request is meant for; others keep silent."""

    server_name: str = ""
    cluster: str = ""
    host: str = ""
    exact_match: bool = False
    tags: list[str] = []
    domain: str = ""

    def selects(self, node: NodeView) -> bool:
        """Whether `node` is meant."""
        own = (node.server_name, node.facts.cluster, node.facts.host)
        for wanted, have in zip((self.server_name, self.cluster, self.host), own, strict=True):
            if wanted and not (wanted == have if self.exact_match else wanted in have):
                return False
        if any(tag.strip().lower() not in node.options.server_tags for tag in self.tags):
            return False
        return not self.domain or self.domain == node.facts.domain


class Target(msgspec.Struct, kw_only=True):
    """The client that a command is about."""

    cid: int = 0


class SkipError(Exception):
    """This node has nothing to say."""


Answer = Callable[[NodeView, bytes], Any]


def _decode(payload: bytes, kind: type[Options]) -> Options:
    if not payload.strip():
        return kind()
    if b"null" not in payload:
        return msgspec.json.decode(payload, type=kind)
    fields = msgspec.json.decode(payload)
    return kind() if fields is None else msgspec.convert(without_nulls(fields, kind), kind)


def _kick(node: NodeView, payload: bytes) -> None:
    cid = _decode(payload, Target).cid
    session = node.sessions.registry.find(cid)
    conn = node.sessions.conns.get(cid) if session is None else session.conn
    if conn is None:
        raise MonitorError("no such client or leafnode id")
    conn.close("Kicked")


def _send_away(node: NodeView, payload: bytes) -> None:
    conn = node.sessions.conns.get(_decode(payload, Target).cid)
    if conn is None:
        raise MonitorError("no such client id")
    if conn.protocol >= 1:
        conn.queue(node.sessions.info_for(conn, ldm=True))


def _reload(node: NodeView, payload: bytes) -> None:
    if node.reloader is None:
        raise MonitorError("this node's configuration cannot be reloaded")
    try:
        node.reloader()
    except ConfigError as error:
        raise MonitorError(str(error)) from error


SERVER: dict[str, Answer] = {
    "VARZ": lambda node, body: varz.varz(node),
    "CONNZ": lambda node, body: connz.connz(node, _decode(body, connz.ConnzOptions)),
    "SUBSZ": lambda node, body: subsz.subsz(node, _decode(body, subsz.SubszOptions)),
    "ROUTEZ": lambda node, body: links.routez(node, _decode(body, links.RoutezOptions)),
    "GATEWAYZ": lambda node, body: links.gatewayz(node, _decode(body, links.GatewayzOptions)),
    "LEAFZ": lambda node, body: links.leafz(node, _decode(body, links.LeafzOptions)),
    "ACCOUNTZ": lambda node, body: accountz.accountz(node, _decode(body, accountz.AccountzOptions)),
    "JSZ": lambda node, body: _jsz(node, _decode(body, jsz.JszOptions)),
    "HEALTHZ": lambda node, body: healthz.healthz(node, _decode(body, healthz.HealthzOptions)),
    "EXPVARZ": lambda node, body: debugging.expvarz(statsz(node)["mem"]),
    "PROFILEZ": lambda node, body: debugging.profilez(
        _decode(body, debugging.ProfilezOptions), node.kernel.monotonic_ns
    ),
    "IPQUEUESZ": lambda node, body: {},
    "RAFTZ": lambda node, body: _raftz(node, _decode(body, RaftzOptions)),
}
"""Requests to one node or to all: what comes back as `data`."""

COMMANDS: dict[str, Answer] = {"KICK": _kick, "LDM": _send_away, "RELOAD": _reload}
"""Requests to one node that change something."""


class RaftzOptions(msgspec.Struct, kw_only=True):
    """Which groups a request wants: those of an account, and one of them; "" for all."""

    account: str = ""
    group: str = ""


def _raftz(node: NodeView, options: RaftzOptions) -> dict[str, Any]:
    """Raft groups of this node; nothing outside of a cluster."""
    view = node.jetstream.cluster_view if node.jetstream is not None else None
    return {} if view is None else view.raftz(options.account, options.group)


def _jsz(node: NodeView, options: jsz.JszOptions) -> Steps[dict[str, Any]]:
    try:
        return (yield from jsz.jsz_steps(node, options))
    except FilteredError:
        raise SkipError from None


def every_account_answer(node: NodeView, payload: bytes) -> Any:
    """`$SYS.REQ.ACCOUNT.PING.STATZ` in the system account, about all accounts of this node. Other
    requests that name PING are about an account of that name. Raises MonitorError or SkipError.
    """
    return _statz(node, _decode(payload, accstatz.AccstatzOptions))


ACCOUNT = ("CONNS", "CONNZ", "INFO", "JSZ", "LEAFZ", "STATZ", "SUBSZ")
"""What is served on `$SYS.REQ.ACCOUNT.<account>.*`."""


def _statz(node: NodeView, wanted: accstatz.AccstatzOptions) -> dict[str, Any]:
    answer = accstatz.accstatz(node, wanted)
    if not answer["account_statz"] and not wanted.include_unused:
        raise SkipError
    return answer


def account_answer(node: NodeView, account: str, name: str, payload: bytes) -> Any:
    """`$SYS.REQ.ACCOUNT.<account>.<name>`: about that account and no other, whatever its name.

    Raises MonitorError or SkipError.
    """
    if name == "CONNZ":
        options = _decode(payload, connz.ConnzOptions)
        options.acc = account
        return connz.connz(node, options)
    if name == "STATZ":
        wanted = _decode(payload, accstatz.AccstatzOptions)
        wanted.accounts = [account]
        return _statz(node, wanted)
    if name == "SUBSZ":
        subs = _decode(payload, subsz.SubszOptions)
        subs.account, subs.subscriptions = account, True
        return subsz.subsz(node, subs)
    if name == "LEAFZ":
        leafs = _decode(payload, links.LeafzOptions)
        leafs.account = account
        return links.leafz(node, leafs)
    if name == "JSZ":
        return jsz.detail_steps(node, account, _decode(payload, jsz.JszOptions))
    if name == "INFO":
        return accountz.account_info(node, account)
    raise SkipError


@contextlib.contextmanager
def _refusals(body: dict[str, Any], answer: Answer) -> Iterator[None]:
    """What `answer` raises becomes the body's error; nothing where there is nothing to say."""
    try:
        yield
    except SkipError:
        body.clear()
    except MonitorError as error:
        if answer not in COMMANDS.values():
            body["data"] = None
        body["error"] = {"code": SERVER_ERROR, "description": str(error)}
    except msgspec.MsgspecError as error:
        body["error"] = {"code": BAD_REQUEST, "description": str(error)}
    except Exception:
        name = getattr(answer, "__name__", repr(answer))
        log.exception(
            "a system request (%s) failed; it is answered with an error; report this fault", name
        )
        body["error"] = {"code": SERVER_ERROR, "description": "internal error, see the log"}


class Responder:
    """Wraps answers for the wire, and sends them."""

    def __init__(self, node: NodeView, info: ServerInfo) -> None:
        self._node = node
        self._info = info
        self._tasks: set[asyncio.Task[None]] = set()
        self._maker = PageMaker(node.kernel.monotonic_ns)

    def respond(
        self, account: Any, reply: bytes, headers: bytes, payload: bytes, answer: Answer
    ) -> None:
        """Answer one request, unless it has no reply subject or means other nodes."""
        if not reply:
            return
        body: dict[str, Any] = {}
        with _refusals(body, answer):
            if not _decode(payload, Filter).selects(self._node):
                return
            data = answer(self._node, payload)
            if isinstance(data, Generator):
                self._spawn(self._in_steps(account, reply, headers, data, answer))
                return
            if isinstance(data, Awaitable):
                self._spawn(self._finish(account, reply, headers, data))
                return
            body["data"] = data
        self._send(account, reply, headers, body)

    def _send(self, account: Any, reply: bytes, headers: bytes, body: dict[str, Any]) -> None:
        """Send an answer, unless it says nothing."""
        if not body:
            return
        if body.get("data") is None and "error" not in body:
            del body["data"]
        payload = msgspec.json.encode({"server": self._info.next(), **body})
        wanted = "" if "error" in body else accepted(headers)
        account.answer(reply, *encoded(payload, wanted))

    async def _in_steps(
        self, account: Any, reply: bytes, headers: bytes, steps: Steps[Any], answer: Answer
    ) -> None:
        """Answer a request whose page is long."""
        body: dict[str, Any] = {}
        with _refusals(body, answer):
            body["data"] = await self._maker.make(steps)
        self._send(account, reply, headers, body)
        self._node.kernel.kick()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(
        self, account: Any, reply: bytes, headers: bytes, data: Awaitable[Any]
    ) -> None:
        """Answer a request that takes its time."""
        body = {"server": self._info.next(), "data": await data}
        account.answer(reply, *encoded(msgspec.json.encode(body), accepted(headers)))
        self._node.kernel.kick()

    def stop(self) -> None:
        """Answer no longer."""
        for task in self._tasks:
            task.cancel()

    def respond_statsz(
        self, account: Any, reply: bytes, payload: bytes, own: bool = False
    ) -> None:
        """Answer a request for statistics, which have a shape of their own and are not compressed;
        `own` says that the subject of the answer is this node's, not one that the request named."""
        if not reply:
            return
        body: dict[str, Any]
        try:
            if not _decode(payload, Filter).selects(self._node):
                return
            body = {"statsz": statsz(self._node)}
        except msgspec.MsgspecError as error:
            body = {"error": {"code": BAD_REQUEST, "description": str(error)}}
        payload = msgspec.json.encode({"server": self._info.next(), **body})
        if own:
            account.send(reply, payload, b"", b"", own=True)
        else:
            account.answer(reply, payload, b"")

    def respond_id(self, account: Any, reply: bytes) -> None:
        """Answer with the node's name and id."""
        node = self._node
        body = {"name": node.server_name, "host": node.facts.host, "id": node.server_id}
        if reply:
            account.send(reply, msgspec.json.encode(body))

