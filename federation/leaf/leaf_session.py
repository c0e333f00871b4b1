"""The handshake of a leaf link, as the hub (accepting) and as the spoke (soliciting) side.

Sans-IO: sessions are told what the peer said and answer by queueing lines on the connection or by
closing it. Time limits, sockets and reconnecting are for the services around them. The order of
the handshake is that of the NATS leaf node protocol: INFO, CONNECT, INFO with the permissions of
the link, interest.
"""

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from headwater.edge.broker.link import RemoteSub
from headwater.edge.broker.rights.rules import Rules
from headwater.edge.conf.options import CompressionOptions
from headwater.edge.facts.info import info_line
from headwater.edge.facts.version import NATS_LEVEL
from headwater.edge.logging.few_lines import FewLines
from headwater.edge.wire.json_objects import object_in
from headwater.federation.leaf.bounded_interest import WIDE, BoundedInterest
from headwater.federation.leaf.compression import (
    AUTO,
    OFF,
    asked_by,
    compress,
    is_more,
    passed,
    retuned,
    stream_of,
)
from headwater.security.auth_options import PermissionOptions
from headwater.security.errors import SecurityError

log = logging.getLogger("headwater.leaf")

LEAF_PROTOCOL = 1
"""Level of the protocol that is spoken: headers, without message tracing."""

HEADWATER_LEVEL = 2
"""Of what Headwaters say to each other beyond that, in INFO and CONNECT: from 1 on, what the other
end is to hold back for a receiver without room; from 2 on, large frames in pieces."""

PIECES_LEVEL = 2

LOOP_DELAY_S = 30.0
"""Pause before a link is tried again that would close a loop; as NATS does."""

SAME_CLUSTER_DELAY_S = 30.0
VERSION_DELAY_S = 5.0
DENIED_DELAY_S = 30.0
REFUSED = "Authentication Failure"

PAYLOAD_MAX = 64 << 20
"""No peer has a longer message kept for it, whatever it says of itself: as much as a client may
have waiting by default."""

ERROR_LINES = 4
"""Errors of a link that are logged one by one in each `ERROR_LINES_S`; the others are counted."""
ERROR_LINES_S = 60.0

TOO_MUCH_INTEREST = "maximum subscriptions exceeded"
_SAME_CLUSTER = "remote leafnode has same cluster name"
_MIN_VERSION = "connection rejected since minimum version required is"


class Peer(msgspec.Struct, kw_only=True):
    """What the other end says of itself."""

    name: str = ""
    server_id: str = ""
    cluster: str = ""
    domain: str = ""
    account: str = ""
    version: str = ""
    jetstream: bool = False


class LinkRules(msgspec.Struct, kw_only=True):
    """What may pass a link, before the denies of JetStream domains."""

    send: Rules = msgspec.field(default_factory=Rules)
    receive: Rules = msgspec.field(default_factory=Rules)


class Links(Protocol):
    """The registry that sessions turn to; see `headwater.federation.leaf.leaf_links`."""

    server_id: str
    server_name: str
    cluster: str
    domain: str
    compression: CompressionOptions
    subjects_max: int

    def admit(self, conn: Any, account: str, rules: LinkRules) -> bool:
        """Bind a link that has proven itself; False when it was refused and closed."""

    def restrict(self, conn: Any, rules: LinkRules) -> None:
        """Change what may pass a link that was admitted before."""

    def loop_subject(self, account: str) -> bytes:
        """Subject that comes back only around a loop."""

    def authenticate(
        self, conn: Any, fields: Mapping[str, Any], nonce: bytes, done: Callable[[Any], None]
    ) -> None:
        """Call `done` with the identity of a peer or with a SecurityError, now or later."""

    def hub_info(self, conn: Any, nonce: str, **extra: Any) -> bytes:
        """INFO line of the accepting side."""

    def look_again(self, conn: Any) -> None:
        """Measure the round trips of a link that was made to compress more, soon and often."""

    def agree(self, conn: Any, own: CompressionOptions, peer: str) -> str:
        """The mode of compression of this end. Raises ValueError for a peer's that is unknown."""


class LeafSession:
    """What both sides have in common: errors, loops, permissions of what comes in."""

    solicited = False
    isolated: bool
    """Whether the interest of other links is kept from this one."""

    def __init__(self, links: Links, address: str) -> None:
        self.links = links
        self.address = address
        self.peer = Peer()
        self.compression = OFF
        """What this end does to what it sends; OFF without agreement of both."""
        self._measured_again = False
        self._passed = 0
        """Bytes on the wire when the last PING was queued."""
        self.retry_delay = 0.0
        """Seconds to wait before the next attempt, when the peer or a loop asks for it."""
        self.last_error = ""
        self.rules = LinkRules()
        self.max_subscriptions = -1
        """Subjects that the peer may be interested in; -1 is any number."""
        self.interest = BoundedInterest(links.subjects_max)
        self.max_payload = 0
        """The largest message that the peer says it sends."""
        self._lines = FewLines(ERROR_LINES, ERROR_LINES_S)

    def label(self, conn: Any) -> str:
        """How log lines name the link."""
        return f"{self.address} - lid:{conn.cid}"

    def got_info(self, conn: Any, payload: bytes) -> None:
        """INFO came."""

    def tell_halt(self, conn: Any, key: bytes, over: bool) -> None:
        """Ask the peer to hold something back, or to let it go, ahead of what waits."""
        said = {"let_go" if over else "hold": key.decode("latin-1")}
        conn.urge(info_line(said))

    def _halted(self, conn: Any, fields: Mapping[str, Any]) -> bool:
        """Do what an INFO of that kind asks for; False for another one."""
        key = fields.get("hold") or fields.get("let_go")
        if not key or not conn.holds_back:
            return False
        try:
            (conn.halts.hold if fields.get("hold") else conn.halts.let_go)(key.encode("latin-1"))
        except (AttributeError, UnicodeEncodeError):
            conn.fail("Unknown Protocol Operation", "Parse Error")
        return True

    def own_compression(self) -> CompressionOptions:
        """How this end is set."""
        return self.links.compression

    def ping(self, conn: Any) -> None:
        """Measure a round trip, and what passes meanwhile."""
        self._passed = passed(conn)
        conn.ping()

    def got_pong(self, conn: Any) -> None:
        """A round trip has been measured. One that asks for more compression is measured again
        first: a busy machine does so as well. Once it is more, it is measured soon again."""
        own = self.own_compression()
        if own.mode != AUTO or not conn.rtt_ns:
            return
        wanted = asked_by(conn, own, passed(conn) - self._passed)
        more = is_more(wanted, self.compression)
        self._measured_again = more and not self._measured_again
        if self._measured_again:
            self.ping(conn)
            return
        self.compression = retuned(conn, own, self.compression, wanted)
        if more:
            self.links.look_again(conn)

    def got_connect(self, conn: Any, payload: bytes) -> None:
        """CONNECT came: only the accepting side expects it."""
        conn.fail("Unknown Protocol Operation", "Protocol Violation")

    def got_error(self, conn: Any, text: bytes) -> None:
        """The peer complains; it usually ends the link itself."""
        error = text.decode("utf-8", "replace")
        self.last_error = error
        if _SAME_CLUSTER in error:
            self.retry_delay = SAME_CLUSTER_DELAY_S
        elif _MIN_VERSION in error:
            self.retry_delay = VERSION_DELAY_S
        elif "Loop detected" in error:
            self.retry_delay = LOOP_DELAY_S
        elif "Permissions Violation" in error:
            self.retry_delay = DENIED_DELAY_S
        self._log_error(conn, f"Leafnode Error '{error}'")
        if "Loop detected" in error:
            conn.close("Protocol Violation")

    def _log_error(self, conn: Any, text: str) -> bool:
        """Log what goes on for as long as the peer likes: some lines, and the number of others.
        Whether this one was logged."""
        now = conn.kernel.monotonic_ns() / 1e9
        left_out = self._lines.left_out(now)
        if left_out:
            log.error("%s - %d more errors were not logged", self.label(conn), left_out)
        logged = self._lines.has_room(now)
        if logged:
            log.error("%s - %s", self.label(conn), text)
        return logged

    def may_add_interest(self, conn: Any, subject: bytes, queue: bytes | None) -> bool:
        """Whether the peer's interest in `subject` is to be kept; ends loops and violations."""
        if subject == self.links.loop_subject(conn.account.name):
            self.retry_delay = LOOP_DELAY_S
            text = (
                f'Loop detected for leafnode account="{conn.account.name}". '
                f"Delaying attempt to reconnect for {LOOP_DELAY_S:.0f}s"
            )
            self.last_error = text
            log.error("%s - %s", self.label(conn), text)
            conn.fail(text, "Protocol Violation")
            return False
        if 0 <= self.max_subscriptions <= len(conn.subs) or conn.account.is_full:
            self._log_error(conn, TOO_MUCH_INTEREST)
            self._complain(conn, TOO_MUCH_INTEREST)
            return False
        if not conn.principal.may_subscribe(subject):
            self._violation(conn, "Subscription", subject)
            return False
        bound = self.interest
        if not bound.has_room(subject, len(conn.subs)) and (subject, queue) not in conn.subs:
            self._widen(conn)
        if bound.covers(subject, queue):
            return False
        if bound.has_room(subject, len(conn.subs)) or (subject, queue) in conn.subs:
            return True
        bound.refused += 1
        # One -ERR for each of a million would fill a slow link.
        if self._log_error(conn, TOO_MUCH_INTEREST):
            self._complain(conn, TOO_MUCH_INTEREST)
        return False

    def _complain(self, conn: Any, text: str) -> None:
        conn.queue(f"-ERR '{text}'\r\n".encode())

    def _widen(self, conn: Any) -> None:
        """Have one wide subject stand for many of the peer's, where they begin alike."""
        word, keys = self.interest.crowd(conn.subs)
        if not word:
            return
        wide = word + b".>"
        conn.keep_interest((wide, WIDE), conn.account, WideSub(conn, wide, None, 1))
        for key in keys:
            conn.account.remove(conn.subs.pop(key))
        log.warning(
            "%s - The peer wants %d subjects that begin with %r: all of %r goes to it from now on",
            self.label(conn), len(keys), word.decode("utf-8", "replace"),
            wide.decode("utf-8", "replace"),
        )  # fmt: skip

    def message_denied(self, conn: Any, subject: bytes) -> None:
        """A message came that may not come in by this link; a spoke just drops it."""
        if not conn.spoke:
            self._violation(conn, "Publish", subject)

    def _violation(self, conn: Any, action: str, subject: bytes) -> None:
        text = subject.decode("utf-8", "replace")
        log.error(
            "%s - %s Violation on %r - Check other side configuration",
            self.label(conn), action, text,
        )
        self.retry_delay = DENIED_DELAY_S
        verb = "Publish" if action == "Publish" else "Subscription"
        conn.fail(f'Permissions Violation for {verb} to "{text}"', "Protocol Violation")


class WideSub(RemoteSub):
    """What is kept in the place of many subjects of the peer."""

    stands_for_others = True


class HubSession(LeafSession):
    """The accepting side of a link."""

    def __init__(self, links: Links, address: str, nonce: str, min_version: str = "") -> None:
        super().__init__(links, address)
        self.nonce = nonce
        self.min_version = min_version
        self.isolated = False
        self._denied: Any = None
        """What the peer said that it will not take."""

    def greet(self, conn: Any) -> None:
        """Open the handshake."""
        conn.queue(self.links.hub_info(conn, self.nonce))

    def got_info(self, conn: Any, payload: bytes) -> None:
        """A spoke that wants to compress says so before its CONNECT."""
        fields = object_in(payload) or {}
        if conn.ready:
            self._halted(conn, fields)
            return
        if self.compression != OFF:
            return
        try:
            self.compression = self.links.agree(
                conn, self.links.compression, str(fields.get("compression") or "")
            )
        except ValueError as error:
            conn.fail(str(error), "Protocol Violation")
            return
        if self.compression != OFF:
            compress(conn, self.compression)
            conn.queue(self.links.hub_info(conn, self.nonce))

    def got_connect(self, conn: Any, payload: bytes) -> None:
        """CONNECT: check who it is, bind the link and open the flow of interest."""
        fields = object_in(payload)
        if fields is None or conn.ready:
            conn.fail("Unknown Protocol Operation", "Protocol Violation")
            return
        refusal = self._refusal(fields)
        if refusal:
            log.error("%s - %s", self.label(conn), refusal)
            conn.fail(refusal, "Protocol Violation")
            return
        self.links.authenticate(
            conn, fields, self.nonce.encode(), lambda outcome: self._decided(conn, fields, outcome)
        )

    def _decided(self, conn: Any, fields: Mapping[str, Any], identity: Any) -> None:
        if isinstance(identity, SecurityError):
            log.error("%s - authentication error: %s", self.label(conn), identity)
            conn.fail("Authorization Violation", getattr(identity, "reason_shown", REFUSED))
            return
        self.peer = peer_of(fields)
        conn.cluster = self.peer.cluster.encode()
        conn.spoke = bool(fields.get("is_hub"))
        conn.headers = conn.headers and bool(fields.get("headers"))
        conn.holds_back = level_of(fields) >= 1
        conn.know_pieces(level_of(fields) >= PIECES_LEVEL)
        self.isolated = bool(fields.get("isolate"))
        self._denied = fields.get("deny_pub")
        self._admit(conn, identity)

    def permit(self, conn: Any, identity: Any) -> None:
        """Put the permissions of a peer that is linked already into force, and tell it."""
        self._send_info(conn, identity)
        self.links.restrict(conn, self.rules)

    def _send_info(self, conn: Any, identity: Any) -> None:
        options = identity.permissions
        self.rules = hub_rules(options, self._denied)
        extra: dict[str, Any] = {
            "connect_info": True,
            "remote_account": identity.account,
            **info_permissions(options),
        }
        stream = stream_of(conn)
        if stream is not None:
            stream.trusted = True
        conn.queue(self.links.hub_info(conn, self.nonce, **extra))

    def _admit(self, conn: Any, identity: Any) -> None:
        self._send_info(conn, identity)
        if self.links.admit(conn, identity.account, self.rules):
            log.info(
                "%s - Leafnode connection from %r created for account: %s",
                self.label(conn), self.peer.name, identity.account,
            )

    def _refusal(self, fields: Mapping[str, Any]) -> str:
        """Why this peer cannot link at all; empty when it may try."""
        cluster = str(fields.get("cluster") or "")
        if fields.get("lang"):
            return "attempted to connect to leaf node port"
        if " " in cluster:
            return "cluster name cannot contain spaces"
        if cluster and cluster == self.links.cluster:
            return _SAME_CLUSTER
        if fields.get("gateway"):
            return f'Rejecting connection from gateway "{fields["gateway"]}" on the leafnode port'
        if self.min_version and _numbers(str(fields.get("version", ""))) < _numbers(
            self.min_version
        ):
            return f'{_MIN_VERSION} "{self.min_version}"'
        return ""


class SpokeSession(LeafSession):
    """The soliciting side of a link."""

    solicited = True

    def __init__(self, links: Links, address: str, remote: "Remote") -> None:
        super().__init__(links, address)
        self.remote = remote
        self._greeted = False
        self._switched = False
        """Whether the first INFO under compression is awaited."""
        self.isolated = remote.isolated

    def own_compression(self) -> CompressionOptions:
        """As of LeafSession."""
        return self.remote.compression

    @property
    def greeted(self) -> bool:
        """Whether the hub has spoken."""
        return self._greeted

    def got_info(self, conn: Any, payload: bytes) -> None:
        """The hub's INFO: the first is answered by CONNECT, the second admits the link."""
        fields = object_in(payload)
        if fields is None:
            conn.fail("Unknown Protocol Operation", "Protocol Violation")
            return
        if not self._greeted:
            self._first_info(conn, fields)
        elif self._switched:
            self._switched = False
            self._log_in(conn, fields)
        elif fields.get("connect_info") and not conn.ready:
            self.peer.account = str(fields.get("remote_account") or "")
            self._set_rules(fields)
            self._admit(conn)
        elif conn.ready and ("import" in fields or "export" in fields):
            self._set_rules(fields)
            self.links.restrict(conn, self.rules)
        elif conn.ready and self._halted(conn, fields):
            return
        if conn.ready:
            self.remote.learn_urls(fields.get("leafnode_urls"))

    def _first_info(self, conn: Any, fields: dict[str, Any]) -> None:
        if not fields.get("client_id") or not fields.get("leafnode_urls"):
            self.last_error = "attempted to connect to wrong port"
            conn.close("Incorrect Port")
            return
        cluster = str(fields.get("cluster") or "")
        if " " in cluster:
            conn.fail("cluster name cannot contain spaces", "Protocol Violation")
            return
        self._greeted = True
        self.peer = peer_of({**fields, "name": fields.get("server_name")})
        conn.cluster = cluster.encode()
        conn.headers = conn.headers and bool(fields.get("headers"))
        conn.holds_back = level_of(fields) >= 1
        conn.know_pieces(level_of(fields) >= PIECES_LEVEL)
        self.max_payload = size_of(fields.get("max_payload"))
        self._set_rules(fields)
        try:
            self.remote.secure(
                conn, bool(fields.get("tls_required")), lambda: self._proven(conn, fields)
            )
        except SecurityError as error:
            self._give_up(conn, error)

    def _proven(self, conn: Any, fields: dict[str, Any]) -> None:
        """The hub has proven itself: agree on compression, and log in."""
        try:
            self.compression = self.links.agree(
                conn, self.remote.compression, str(fields.get("compression") or "")
            )
        except ValueError as error:
            conn.fail(str(error), "Protocol Violation")
            return
        if self.compression == OFF:
            self._log_in(conn, fields)
            return
        told = {"compression": self.remote.compression.mode, "server_id": self.links.server_id}
        line = b"INFO " + msgspec.json.encode(told) + b"\r\n"
        self._switched = True
        compress(conn, self.compression, line).trusted = True

    def _log_in(self, conn: Any, fields: Mapping[str, Any]) -> None:
        """Say who we are; a hub of old will not answer."""
        nonce = str(fields.get("nonce") or "")
        at_once = not fields.get("info_on_connect")
        try:
            line = self.remote.connect_line(nonce, conn.headers, self.compression)
        except SecurityError as error:
            self._give_up(conn, error)
            return
        conn.queue(line)
        if at_once:
            self._admit(conn)

    def _give_up(self, conn: Any, error: SecurityError) -> None:
        self.last_error = str(error)
        log.error(
            "%s - cannot present credentials: %s; the link is tried again: mend its credentials",
            self.label(conn),
            error,
        )
        conn.close("Authentication Failure")

    def _set_rules(self, fields: Mapping[str, Any]) -> None:
        exports = info_rule(fields.get("export"))
        imports = info_rule(fields.get("import"))
        self.rules = LinkRules(
            send=exports.denying(encoded(self.remote.deny_exports)),
            receive=imports.denying(encoded(self.remote.deny_imports)),
        )

    def _admit(self, conn: Any) -> None:
        conn.spoke = not self.remote.hub
        if self.links.admit(conn, self.remote.account, self.rules):
            log.info(
                "%s - Leafnode connection created for account: %s",
                self.label(conn), self.remote.account,
            )
            self.remote.established()


class Remote(Protocol):
    """What a spoke session needs of the remote that it was made for."""

    account: str
    hub: bool
    isolated: bool
    compression: CompressionOptions
    deny_imports: list[str]
    deny_exports: list[str]

    def secure(self, conn: Any, required: bool, then: Callable[[], None]) -> None:
        """Begin TLS when this remote or the hub wants it. `then` is called when the hub has proven
        itself as far as is asked of it. Raises SecurityError."""

    def connect_line(self, nonce: str, headers: bool, compression: str) -> bytes:
        """The CONNECT line. Raises SecurityError when credentials cannot be read."""

    def learn_urls(self, urls: Any) -> None:
        """The hub told of further addresses."""

    def established(self) -> None:
        """The link is up."""


def connect_line(fields: Mapping[str, Any]) -> bytes:
    """A CONNECT line; fields that are empty are left out, as NATS does."""
    given = {key: value for key, value in fields.items() if value}
    given["version"] = NATS_LEVEL
    given["protocol"] = LEAF_PROTOCOL
    given["headwater"] = HEADWATER_LEVEL
    return b"CONNECT " + msgspec.json.encode(given) + b"\r\n"


def peer_of(fields: Mapping[str, Any]) -> Peer:
    """The peer as its INFO or CONNECT describes it; wrong types count as absent."""

    def text(key: str) -> str:
        value = fields.get(key)
        return value if isinstance(value, str) else ""

    return Peer(
        name=text("name") or text("server_id"),
        server_id=text("server_id"),
        cluster=text("cluster"),
        domain=text("domain"),
        account=text("remote_account"),
        version=text("version"),
        jetstream=bool(fields.get("jetstream")),
    )


def size_of(told: Any) -> int:
    """Bytes of the largest message, as a peer says it: 0 for what is no number above that."""
    known = isinstance(told, int) and told > 0
    return min(told, PAYLOAD_MAX) if known else 0


def level_of(fields: Mapping[str, Any]) -> int:
    """What a peer understands of `HEADWATER_LEVEL`; 0 for another server."""
    told = fields.get("headwater")
    return told if isinstance(told, int) else 0


def encoded(subjects: Any) -> list[bytes]:
    """Subject rules as bytes; a queue name after the subject is of no concern to links."""
    if not isinstance(subjects, list):
        return []
    return [text.split()[0].encode() for text in subjects if isinstance(text, str) and text.strip()]


def info_rule(rule: Any) -> Rules:
    """Rules out of an INFO's `import` or `export`."""
    if not isinstance(rule, dict):
        return Rules()
    allow = rule.get("allow")
    return Rules(encoded(allow) if allow else None, encoded(rule.get("deny")))


def hub_rules(options: PermissionOptions | None, deny_pub: Any) -> LinkRules:
    """What a hub lets pass for a user: it sends what the user may subscribe to."""
    send, receive = Rules(), Rules()
    if options is not None and options.subscribe is not None:
        rule = options.subscribe
        send = Rules(encoded(rule.allow) if rule.allow else None, encoded(rule.deny))
    if options is not None and options.publish is not None:
        rule = options.publish
        allow = None if rule.allow is None else encoded(rule.allow)
        receive = Rules(allow, encoded(rule.deny))
    return LinkRules(send=send.denying(encoded(deny_pub)), receive=receive)


def info_permissions(options: PermissionOptions | None) -> dict[str, Any]:
    """`import` and `export` of the INFO that tells a spoke its permissions."""
    out: dict[str, Any] = {}
    if options is None:
        return out
    for name, rule in (("import", options.subscribe), ("export", options.publish)):
        if rule is not None:
            out[name] = {"allow": rule.allow or [], "deny": rule.deny}
    return out


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})", version)
    return tuple(map(int, found.groups())) if found else (0, 0, 0)
