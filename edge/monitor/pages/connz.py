"""/connz: the connections of a node, open and closed (NATS monitoring, `Connz`)."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from headwater.edge.facts.moments import duration, nanoseconds, rfc3339, uptime
from headwater.edge.monitor.errors import MonitorError
from headwater.edge.monitor.query import Query
from headwater.edge.view.node_view import NodeView
from headwater.edge.view.system_info import user_name, user_token
from headwater.security.auth_options import GLOBAL_ACCOUNT
from headwater.security.subjects import overlaps

LIMIT_DEFAULT = 1024
"""Connections in one answer when the request names no limit."""

OPEN, CLOSED, ALL = range(3)
_STATES = {"": OPEN, "open": OPEN, "closed": CLOSED, "any": ALL, "all": ALL}
_CLOSED_SORTS = ("stop", "reason")


class ConnzOptions(msgspec.Struct, kw_only=True):
    """What a request asks for; names as in `$SYS.REQ.SERVER.*.CONNZ`."""

    sort: str = ""
    auth: bool = False
    subscriptions: bool = False
    subscriptions_detail: bool = False
    offset: int = 0
    limit: int = 0
    cid: int = 0
    mqtt_client: str = ""
    state: int = OPEN
    user: str = ""
    acc: str = ""
    filter_subject: str = ""

    @classmethod
    def from_query(cls, query: Query) -> "ConnzOptions":
        """From HTTP parameters; a subject to filter by is none of them. Raises MonitorError."""
        names, details = query.subscriptions()
        state = query.text("state").lower()
        options = cls(
            sort=query.text("sort"),
            auth=query.flag("auth"),
            subscriptions=names,
            subscriptions_detail=details,
            offset=query.number("offset"),
            limit=query.number("limit"),
            cid=query.identifier("cid"),
            mqtt_client=query.text("mqtt_client"),
            user=query.text("user"),
            acc=query.text("acc"),
        )
        if state not in _STATES:
            raise MonitorError(f"Error decoding state for {query.text('state')}")
        options.state = _STATES[state]
        return options


class _Row:
    """One connection while the answer is made."""

    __slots__ = (
        "_lived_ns",
        "conn",
        "detail",
        "last_ns",
        "now_ns",
        "reason",
        "start_ns",
        "stop_ns",
        "sub_count",
    )

    def __init__(self, node: NodeView, conn: Any, now_ns: int, closed: Any = None) -> None:
        self.conn = conn
        self.detail: dict[str, Any] = node.sessions.detail(conn)
        self.now_ns: int = now_ns
        self.start_ns: int = nanoseconds(self.detail.get("start", 0.0))
        self.stop_ns: int = 0 if closed is None else nanoseconds(closed.stop)
        self.sub_count: int = len(conn.subs) if closed is None else closed.sub_count
        self.reason: str = "" if closed is None else closed.reason
        self.last_ns: int = max(self.start_ns, conn.active_ns)
        if self.start_ns > (self.stop_ns or now_ns):
            # The wall clock was set back: only what has passed since tells.
            self.last_ns = min(conn.active_ns, self.stop_ns or now_ns)
        self._lived_ns: int = self.detail.get("lived_ns", 0)
        if closed is None:
            self._lived_ns = node.kernel.monotonic_ns() - self.detail.get("opened_ns", 0)

    def user(self) -> str:
        return user_name(self.conn)

    def account(self) -> str:
        return "" if self.conn.account is None else str(self.conn.account.name)

    def lifetime_ns(self) -> int:
        """Setting the wall clock does not change it."""
        return self._lived_ns

    def rtt_ns(self) -> int:
        return int(self.detail.get("rtt_ns", 0))

    def shown_rtt_ns(self) -> int:
        """Whole microseconds below a millisecond, as the reference shows it."""
        rtt = self.rtt_ns()
        return rtt - rtt % 1000 if 1000 < rtt < 1_000_000 else rtt


_Key = Callable[[_Row], Any]
_SORTS: dict[str, tuple[_Key, bool]] = {
    "cid": (lambda row: row.conn.cid, False),
    "start": (lambda row: row.conn.cid, False),
    "subs": (lambda row: row.sub_count, True),
    "pending": (lambda row: row.conn.pending, True),
    "msgs_to": (lambda row: row.conn.out_msgs, True),
    "msgs_from": (lambda row: row.conn.in_msgs, True),
    "bytes_to": (lambda row: row.conn.out_bytes, True),
    "bytes_from": (lambda row: row.conn.in_bytes, True),
    "last": (lambda row: row.last_ns, True),
    "idle": (lambda row: row.now_ns - row.last_ns, True),
    "uptime": (_Row.lifetime_ns, False),
    "stop": (lambda row: row.stop_ns, True),
    "reason": (lambda row: row.reason, False),
    "rtt": (_Row.rtt_ns, True),
}
"""Sort option: key, and whether the largest come first."""


def connz(node: NodeView, options: ConnzOptions | None = None) -> dict[str, Any]:
    """The answer. Raises MonitorError."""
    wanted = options or ConnzOptions()
    key, reverse = _ordering(wanted)
    if wanted.filter_subject not in ("", ">") and not wanted.acc:
        raise MonitorError("filter by subject only valid with account filtering")
    limit = 1 if wanted.cid > 0 else wanted.limit if wanted.limit > 0 else LIMIT_DEFAULT
    offset = max(0, wanted.offset)
    now_ns = node.kernel.wall_ns()
    if wanted.acc and wanted.acc not in node.accounts:
        return _of_nobody(rfc3339(now_ns), offset, limit)
    rows = [row for row in _rows(node, wanted, now_ns) if wanted.acc in ("", row.account())]
    total = len(rows)
    rows = [row for row in rows if _selected(row, wanted)]
    rows.sort(key=key, reverse=reverse)
    shown = rows[offset : offset + limit]
    return {
        "server_id": node.server_id,
        "now": rfc3339(now_ns),
        "num_connections": len(shown),
        "total": total,
        "offset": offset,
        "limit": limit,
        "connections": [_describe(row, wanted) for row in shown],
    }


def _of_nobody(now: str, offset: int, limit: int) -> dict[str, Any]:
    """What is said of an account that is not there: as in the reference, without the server."""
    counts = {"num_connections": 0, "total": 0, "offset": offset, "limit": limit}
    return {"server_id": "", "now": now, **counts, "connections": None}


def _ordering(options: ConnzOptions) -> tuple[_Key, bool]:
    name = options.sort or "cid"
    if name not in _SORTS:
        raise MonitorError(f"invalid sorting option: {name}")
    if name in _CLOSED_SORTS and options.state != CLOSED:
        raise MonitorError(f"sort by {name} only valid on closed connections")
    return _SORTS[name]


def _rows(node: NodeView, options: ConnzOptions, now_ns: int) -> Iterable[_Row]:
    sessions = node.sessions
    if options.state in (OPEN, ALL):
        for conn in list(sessions.conns.values()):
            yield _Row(node, conn, now_ns)
    if options.state in (CLOSED, ALL):
        for ended in list(sessions.closed.values()):
            yield _Row(node, ended, now_ns, ended)


def _selected(row: _Row, options: ConnzOptions) -> bool:
    if options.cid and row.conn.cid != options.cid:
        return False
    if options.user and row.user() != options.user:
        return False
    if options.mqtt_client:
        return False
    if options.filter_subject in ("", ">") or row.stop_ns:
        return True
    pattern = options.filter_subject.split(".")
    subjects = (text(sub.subject).split(".") for sub in row.conn.subs.values())
    return any(overlaps(pattern, tokens) for tokens in subjects)


def _describe(row: _Row, options: ConnzOptions) -> dict[str, Any]:
    conn, detail = row.conn, row.detail
    websocket = detail.get("kind") == "WEBSOCKET"
    fields: dict[str, Any] = {
        "cid": conn.cid,
        "kind": "Client",
        "type": "websocket" if websocket else "nats",
        "ip": detail.get("ip", ""),
        "port": detail.get("port", 0),
        "start": rfc3339(row.start_ns),
        "last_activity": rfc3339(row.last_ns),
    }
    if row.stop_ns:
        fields["stop"] = rfc3339(row.stop_ns)
        fields["reason"] = row.reason
    fields["rtt"] = duration(row.shown_rtt_ns())
    fields["uptime"] = uptime(row.lifetime_ns() / 1e9)
    fields["idle"] = uptime(((row.stop_ns or row.now_ns) - row.last_ns) / 1e9)
    fields.update(
        pending_bytes=conn.pending,
        in_msgs=conn.in_msgs,
        out_msgs=conn.out_msgs,
        in_bytes=conn.in_bytes,
        out_bytes=conn.out_bytes,
        subscriptions=row.sub_count,
    )
    optional = {
        "stalls": conn.stalls,
        "name": _said_text(conn, "name"),
        "lang": _said_text(conn, "lang"),
        "version": _said_text(conn, "version"),
        "tls_version": str(detail.get("tls_version", "")).removeprefix("TLSv"),
        "tls_cipher_suite": detail.get("tls_cipher", ""),
        "tls_first": detail.get("tls_first", False),
    }
    fields.update({name: value for name, value in optional.items() if value})
    if conn.identity is not None and conn.identity.proxy:
        fields["proxy"] = {"key": conn.identity.proxy}
    if options.auth:
        fields.update(_authorization(row))
    fields.update(_subscriptions(row, options))
    return fields


def _said_text(conn: Any, name: str) -> str:
    """A text that the client said of itself in CONNECT."""
    value = conn.options.get(name)
    return value if isinstance(value, str) else ""


def _authorization(row: _Row) -> dict[str, Any]:
    identity = row.conn.identity
    account = row.account()
    fields = {
        "authorized_user": row.user(),
        "account": account if account != GLOBAL_ACCOUNT else "",
        "jwt": user_token(row.conn),
        "issuer_key": "" if identity is None else identity.issuer,
        "name_tag": (identity.account_name if identity is not None else "") or account,
        "tags": [] if identity is None else identity.tags,
    }
    return {name: value for name, value in fields.items() if value}


def _subscriptions(row: _Row, options: ConnzOptions) -> dict[str, Any]:
    conn = row.conn
    if not conn.subs:
        return {}
    if options.subscriptions_detail:
        account = row.account() if row.stop_ns else ""
        details = [sub_detail(conn, sub, account) for sub in conn.subs.values()]
        return {"subscriptions_list_detail": details}
    if options.subscriptions:
        return {"subscriptions_list": [text(sub.subject) for sub in conn.subs.values()]}
    return {}


def sub_detail(conn: Any, sub: Any, account: str = "") -> dict[str, Any]:
    """One subscription; `account` is named where those of many accounts are listed, and of
    connections that are closed."""
    fields: dict[str, Any] = {}
    if account:
        fields["account"] = fields["account_tag"] = account
    fields["subject"] = text(sub.subject)
    if sub.queue is not None:
        fields["qgroup"] = text(sub.queue)
    fields["sid"] = text(sub.sid)
    fields["msgs"] = sub.delivered
    if sub.maximum:
        fields["max"] = sub.maximum
    fields["cid"] = conn.cid
    return fields


def text(value: bytes) -> str:
    """Protocol bytes for display; what is not UTF-8 is replaced."""
    return value.decode("utf-8", "replace")
