"""Client sessions: what happens between accept and close beside moving bytes.

`Sessions` is the `server` of every `ClientConn`: it sends INFO, decides on logins through
`security`, binds connections to accounts, enforces connection limits and keeps the timers. It is
the one place where a client is authorized.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

from headwater.edge.broker.account import Account
from headwater.edge.broker.client import ClientConn
from headwater.edge.broker.client_lines import (
    tell_closed,
    tell_created,
    tell_refused_login,
    tell_violation,
)
from headwater.edge.broker.conn import LOGIN_BYTES
from headwater.edge.broker.logins.closed_conn import ClosedConn
from headwater.edge.broker.logins.password_checks import PasswordChecks
from headwater.edge.broker.logins.registry import TOO_MANY, Outcome, Registry, Session
from headwater.edge.broker.msg_trace import written
from headwater.edge.broker.rights.grants import Rights
from headwater.edge.broker.slow_receivers import sweep_clients
from headwater.edge.conf.options import Options
from headwater.edge.facts.info import NodeFacts, info_fields, info_line
from headwater.edge.kernel.kernel import Kernel
from headwater.edge.ports.draws import draw_nonce
from headwater.security.authenticator import Authenticator
from headwater.security.errors import (
    ProxyNotTrustedError,
    ProxyRequiredError,
    SecurityError,
)
from headwater.security.identity import AuthRequest, Identity, lowest
from headwater.security.permissions import Permissions

SWEEP_S = 0.25
"""How often slow receivers are looked at."""

FIRST_PING_S = 2.0
"""So long after its login a client gets its first PING, and up to a fifth more, so that not all get
it at once. Launchers of servers wait for it (nats-server, `firstClientPingInterval`)."""

SPREAD = 100
"""Moments of that fifth, of which a connection's number names one."""

CLOSED_BYTES_MAX = 4 << 20
"""Of the subscriptions of closed connections, which are kept for monitoring."""

PATIENCE_NS = 1_000_000_000
"""Time without progress after which slow producers no longer wait for a receiver."""

RESERVED_QUEUE = b"_sys_"
"""Of the queue group in which servers answer direct reads; no client may join it."""

_OF_OPEN_CONNS = ("auth", "certificate", "fallback", "info", "own", "verdicts")
"""Details of a connection that are of no use once it has ended, some of them secret."""


class SessionObserver(Protocol):
    """Is told of clients that come and go."""

    def client_admitted(self, conn: ClientConn) -> None:
        """A client has logged in."""

    def client_refused(self, conn: ClientConn, reason: str) -> None:
        """A client's login was refused; its connection is about to close."""

    def client_closed(self, conn: ClientConn, reason: str) -> None:
        """A connection has ended, whether or not it had logged in."""

    def peer_invalid(self, peer: bytes, link: bytes, reason: str) -> None:
        """OCSP speaks against a certificate of a peer's chain (`link`; both DER)."""

    def peer_refused(self, kind: str, peer: bytes, reason: str) -> None:
        """A peer with this certificate (DER) is not admitted, because of OCSP."""


class Sessions:
    """All client sessions of a node."""

    def __init__(
        self,
        kernel: Kernel,
        options: Options,
        facts: NodeFacts,
        authenticator: Authenticator,
        account_for: Callable[[str], Account],
    ) -> None:
        self.kernel = kernel
        self.options = options
        self.facts = facts
        self.authenticator = authenticator
        self.account_for = account_for
        self.headers_supported = not options.no_header_support
        self.conns: dict[int, ClientConn] = {}
        self.closed: OrderedDict[int, ClosedConn] = OrderedDict()
        self._closed_bytes = 0
        self.total = 0
        self.slow_consumers = 0
        self.stale = 0
        self.auth_errors = 0
        self.leaving = False
        self.observers: list[SessionObserver] = []
        self.describe_node: Callable[[dict[str, Any], str], tuple[bytes, bytes]] = written
        """Makes an event of this node of a trace's, in an encoding that is accepted."""
        self.checks = PasswordChecks(kernel.loop)
        self.registry = Registry(kernel)
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._nonces: dict[int, str] = {}
        self._details: dict[int, dict[str, Any]] = {}
        self._sweeper = kernel.loop.call_later(SWEEP_S, self._sweep)

    # --- life of a connection ---

    def accept(self, sock: Any, address: tuple[Any, ...], *, kind: str = "STANDARD") -> ClientConn:
        """Make the session of a new socket. The caller attaches it and then calls `greet`."""
        conn = ClientConn(self, self.kernel, self.registry.next_cid(), self.options.max_pending)
        conn.max_payload = self.options.max_payload
        conn.max_control_line = self.options.max_control_line
        conn.on_closed = self._on_closed
        conn.allowance = max(LOGIN_BYTES, 2 * self.options.max_control_line)
        self._details[conn.cid] = {
            "ip": address[0] if address else "",
            "port": address[1] if len(address) > 1 else 0,
            "start": self.now_s(),
            "opened_ns": self.kernel.monotonic_ns(),
            "kind": kind,
            "secure": False,
        }
        self.conns[conn.cid] = conn
        self.total += 1
        self._arm(conn, self.options.auth_timeout(), self._login_expired)
        return conn

    def accept_own(self, sock: Any, identity: Identity) -> ClientConn:
        """Serve a socket of the program that the node runs in: it is `identity` without a login,
        and speaks no TLS."""
        conn = self.accept(sock, (), kind="IN_PROCESS")
        self.detail(conn).update(
            own=identity, info={"tls_required": False, "tls_verify": False, "auth_required": False}
        )
        conn.attach(sock)
        self.greet(conn)
        self.kernel.turn()
        return conn

    def now_s(self) -> float:
        """The time of day in Unix seconds."""
        return self.kernel.wall_ns() / 1e9

    def full(self) -> bool:
        """Whether there are more connections than may be."""
        most = self.options.max_connections
        return most < 0 or 0 < most < len(self.conns)

    def greet(self, conn: ClientConn) -> None:
        """Send INFO and start the login's clock."""
        if self.authenticator.nonce_required():
            self._nonces[conn.cid] = draw_nonce(self.kernel.chance)
        tell_created(conn)
        conn.queue(self.info_for(conn))
        if self.full():
            conn.refuse("maximum connections exceeded", "Maximum Connections Exceeded")
            return
        own = self.detail(conn).get("own")
        free = not self.authenticator.auth_required() and not self.detail(conn).get("auth")
        if own is not None or free:
            self._admit(conn, own or Identity())
        self._arm(conn, self.options.auth_timeout(), self._login_expired)

    def detail(self, conn: ClientConn) -> dict[str, Any]:
        """Address, start time and connection type, kept until the record is forgotten."""
        return self._details.get(conn.cid, {})

    def relocate(self, conn: ClientConn, address: tuple[Any, ...]) -> None:
        """A proxy has told where a client really is."""
        self.detail(conn).update(ip=address[0], port=address[1])

    def info_for(self, conn: ClientConn, **extra: Any) -> bytes:
        """INFO line for one connection."""
        fields = info_fields(
            self.facts,
            cid=conn.cid,
            client_ip="" if self.options.proxy_protocol else str(self.detail(conn).get("ip", "")),
            nonce=self._nonces.get(conn.cid, ""),
        )
        fields["auth_required"] = self.facts.auth_required
        websocket = self.detail(conn).get("kind") == "WEBSOCKET"
        # Who comes without a login is somebody here; nats-server does not say so by WebSocket.
        if not self.facts.auth_required or (self.options.no_auth_user and not websocket):
            del fields["auth_required"]
        fields["max_payload"] = conn.max_payload
        if websocket:
            fields.pop("connect_urls", None)
            if self.facts.ws_connect_urls:
                fields["connect_urls"] = self.facts.ws_connect_urls
        fields.update(self.detail(conn).get("info", {}))
        fields.update(extra)
        return info_line(fields)

    def announce(self) -> None:
        """Send INFO again to everybody who understands it (cluster changes, lame duck).

        Not before the first PONG, which clients expect next after CONNECT: INFO follows it anyway.
        Not when the node ends: that its peers are gone is true of the node, not of the cluster,
        and clients would forget where else they can go.
        """
        if self.leaving:
            return
        for conn in list(self.conns.values()):
            if conn.first_ping_seen and conn.protocol >= 1:
                conn.queue(self.info_for(conn))

    def _on_closed(self, conn: ClientConn, reason: str) -> None:
        self._disarm(conn)
        self.conns.pop(conn.cid, None)
        self._nonces.pop(conn.cid, None)
        if reason.startswith("Slow Consumer"):
            self.slow_consumers += 1
        elif reason == "Stale Connection":
            self.stale += 1
        self.registry.leave(conn.cid)
        if conn.account is not None and conn.identity is not None:
            conn.account.connections -= 1
        tell_closed(conn, reason)
        for observer in self.observers:
            observer.client_closed(conn, reason)
        closed = self.closed[conn.cid] = ClosedConn(conn, reason, self.now_s())
        self._keep_subs(closed)
        detail = self._details.get(conn.cid, {})
        for key in _OF_OPEN_CONNS:
            detail.pop(key, None)
        detail["lived_ns"] = self.kernel.monotonic_ns() - detail.get("opened_ns", 0)
        while len(self.closed) > self.options.max_closed_clients:
            forgotten, gone = self.closed.popitem(last=False)
            self._closed_bytes -= gone.sub_bytes
            self._details.pop(forgotten, None)

    def _keep_subs(self, closed: ClosedConn) -> None:
        """Count what is kept of subscriptions that have ended, and let the oldest go."""
        self._closed_bytes += closed.sub_bytes
        if self._closed_bytes <= CLOSED_BYTES_MAX:
            return
        for old in self.closed.values():
            self._closed_bytes -= old.sub_bytes
            old.forget_subs()
            if self._closed_bytes <= CLOSED_BYTES_MAX // 2:
                return

    # --- login ---

    def login(self, conn: ClientConn, fields: dict[str, Any], *, answer: bool = True) -> None:
        """Admit a connection, or refuse and close it, now or a little later.

        `fields` are those of CONNECT, which is answered unless it never came.
        """
        detail = self.detail(conn)
        opened: int = detail.get("opened_ns", 0)
        detail.setdefault("rtt_ns", self.kernel.monotonic_ns() - opened)
        if own := detail.get("own"):
            self._decided(conn, own, answer)
            return
        self.checks.decide(
            conn,
            self._auth_request(conn, fields),
            lambda request: self.authenticator.authenticate(request),
            lambda outcome: self._decided(conn, outcome, answer),
        )

    def _decided(self, conn: ClientConn, outcome: Identity | SecurityError, answer: bool) -> None:
        if not isinstance(outcome, SecurityError):
            if self._admit(conn, outcome) and answer:
                conn.welcome()
            return
        self.auth_errors += 1
        tell_refused_login(conn, conn.options or {}, outcome)
        reason = "Authentication Failure"
        if isinstance(outcome, ProxyRequiredError | ProxyNotTrustedError):
            reason = outcome.reason_shown
        for observer in self.observers:
            observer.client_refused(conn, reason)
        conn.refuse("Authorization Violation", reason)

    def _auth_request(self, conn: ClientConn, fields: dict[str, Any]) -> AuthRequest:
        detail = self.detail(conn)
        fallback = detail.get("fallback")
        websocket = detail.get("kind") == "WEBSOCKET"
        tls = self.options.websocket.tls if websocket else self.options.tls
        if fallback:
            fields = fallback | {name: value for name, value in fields.items() if value}
        return AuthRequest(
            connect=fields,
            verdicts=detail.setdefault("verdicts", {}),
            nonce=self._nonces.get(conn.cid, "").encode(),
            connection_type=str(detail.get("kind", "STANDARD")),
            host=str(detail.get("ip", "")),
            certificate=detail.get("certificate"),
            map_certificate=bool(tls and tls.verify_and_map),
            override=detail.get("auth"),
            no_auth_user=detail.get("no_auth_user"),
            now=self.now_s(),
        )

    def _decide(self, conn: ClientConn, done: Callable[[Outcome], None]) -> None:
        """Call `done` with the identity that a client has by what it presented, or why it has
        none."""
        if own := self.detail(conn).get("own"):
            done(own)
            return
        self.checks.decide(
            conn,
            self._auth_request(conn, conn.options),
            lambda request: self.authenticator.authenticate(request),
            done,
        )

    def _rebind(self, conn: ClientConn, identity: Identity) -> None:
        """Put a newly decided identity into force.

        A client whose rights have shrunk loses the subscriptions that it may no longer have. One
        that belongs to another account now is cut: it comes again, and subscribes there.
        """
        if conn.account is None or identity.account != conn.account.name:
            conn.close("Client Closed")
            return
        if not self._admit(conn, identity, again=True):
            return
        for sub in list(conn.subs.values()):
            if not conn.principal.may_subscribe(sub.subject, sub.queue):
                text = f"{_quoted(sub.subject)} (sid {_quoted(sub.sid)})"
                conn.warn(f"Permissions Violation for Subscription to {text}")
                conn.drop_sub(sub)
            else:
                sub.checked = conn.principal.filters(sub.subject, sub.queue)

    def _admit(self, conn: ClientConn, identity: Identity, *, again: bool = False) -> bool:
        account = self.account_for(identity.account)
        bound = conn.identity is not None
        if conn.account is not account and not self.registry.has_room(account, leaf=False):
            conn.refuse(*TOO_MANY)
            return False
        if bound and conn.account is not None:
            conn.account.connections -= 1
        conn.move_to(account)
        account.connections += 1
        conn.identity = identity
        rights = None
        if identity.permissions is not None:
            rights = Rights(Permissions(identity.permissions), self.kernel.loop.time)
        conn.restrict(rights)
        self._apply_limits(conn, identity, account)
        conn.ready = True
        conn.prove()
        if again:
            self._arm(conn, self.options.ping_interval, self._ping)
        else:
            first = min(self.options.ping_interval, FIRST_PING_S)
            share = conn.cid % SPREAD / SPREAD / 5
            self._arm(conn, first * (1 + share), self._first_ping)
        self.registry.enter(
            Session(
                conn,
                account,
                identity,
                end=conn.refuse,
                apply_limits=lambda: self.apply_limits(conn),
                decide=lambda done: self._decide(conn, done),
                rebind=lambda found: self._rebind(conn, found),
            )
        )
        if conn.options and not again:
            for observer in self.observers:
                observer.client_admitted(conn)
        return True

    def apply_limits(self, conn: ClientConn) -> None:
        """Bring a client's limits up to date with the options in force."""
        if conn.identity is not None and conn.account is not None:
            self._apply_limits(conn, conn.identity, conn.account)

    def _apply_limits(self, conn: ClientConn, identity: Identity, account: Account) -> None:
        """Of the limits that the node, the account and the user have, the lowest is in force."""
        own, limits = identity.limits, account.limits
        conn.trace_dest = self._trace_of(account)
        conn.max_payload = lowest(
            own.max_payload, limits.get("max_payload", -1), self.options.max_payload
        )
        conn.max_subscriptions = lowest(
            own.max_subscriptions,
            limits.get("max_subscriptions", -1),
            self.options.max_subscriptions or -1,
        )
        if conn.max_subscriptions == 0 or 0 < conn.max_subscriptions < len(conn.subs):
            conn.refuse("maximum subscriptions exceeded", "Maximum Subscriptions Exceeded")

    def _trace_of(self, account: Account) -> tuple[bytes, int] | None:
        """Where traces of an account's sampled messages go, and how many percent of them."""
        terms = self.options.accounts.get(account.name)
        if terms is not None and terms.trace_destination:
            return terms.trace_destination.encode(), terms.trace_sampling
        claims = None
        if self.authenticator.operator_mode:
            claims = self.authenticator.account_claims(account.name)
        if claims is None or claims.nats.trace is None or not claims.nats.trace.dest:
            return None
        return claims.nats.trace.dest.encode(), claims.nats.trace.sampling or 100

    def first_verb(self, conn: ClientConn) -> None:
        """A verb came before CONNECT: an implicit login where that is configured."""
        no_auth_user = self.detail(conn).get("no_auth_user") or self.options.no_auth_user
        if no_auth_user:
            self.login(conn, {}, answer=False)
        if not conn.ready and not conn.deciding and not conn.closed:
            tell_refused_login(conn, {})
            conn.refuse("Authorization Violation", "Authentication Failure")

    def _login_expired(self, conn: ClientConn) -> None:
        if conn.deciding:
            self._arm(conn, self.options.auth_timeout(), self._login_expired)
        elif not conn.ready:
            conn.refuse("Authentication Timeout", "Authentication Timeout")
        elif not conn.options:
            self._arm(conn, self.options.ping_interval, self._ping)

    def after_first_ping(self, conn: ClientConn) -> None:
        """Newer clients learn their account from a second INFO."""
        extra: dict[str, Any] = {"connect_info": True, "remote_account": conn.account.name}
        if conn.account.name == (self.options.system_account or "$SYS"):
            extra["acc_is_sys"] = True
        conn.queue(self.info_for(conn, **extra))

    # --- permissions ---

    def may_subscribe(self, conn: ClientConn, subject: bytes, queue: bytes | None) -> bool:
        """Whether a SUB is allowed; answers the violation otherwise."""
        limit = self.options.max_subscription_tokens
        if limit and subject.count(b".") + 1 > limit:
            text = _quoted(subject)
            conn.warn(f"Permissions Violation for Subscription to {text}, too many tokens")
            return False
        if queue != RESERVED_QUEUE and conn.principal.may_subscribe(subject, queue):
            return True
        text = _quoted(subject)
        using = f" using queue {_quoted(queue)}" if queue else ""
        conn.warn(f"Permissions Violation for Subscription to {text}{using}")
        tell_violation(conn, f"Subscription Violation - Subject {text}{using}")
        return False

    def publish_denied(self, conn: ClientConn, subject: bytes) -> None:
        """Answer a publish that permissions refuse."""
        conn.warn(f"Permissions Violation for Publish to {_quoted(subject)}")
        tell_violation(conn, f"Publish Violation - Subject {_quoted(subject)}")

    def reply_denied(self, conn: ClientConn, reply: bytes) -> None:
        """Answer a publish whose reply subject is reserved."""
        conn.warn(f"Permissions Violation for Publish with Reply of {_quoted(reply)}")

    # --- timers ---

    def _arm(self, conn: ClientConn, delay: float, action: Callable[[ClientConn], None]) -> None:
        self._disarm(conn)
        if not conn.closed:
            self._timers[conn.cid] = self.kernel.loop.call_later(delay, action, conn)

    def _disarm(self, conn: ClientConn) -> None:
        timer = self._timers.pop(conn.cid, None)
        if timer is not None:
            timer.cancel()

    def _first_ping(self, conn: ClientConn) -> None:
        if not conn.closed:
            self._send_ping(conn)
            self._arm(conn, self.options.ping_interval, self._ping)

    def _send_ping(self, conn: ClientConn) -> None:
        conn.pings_out += 1
        self.detail(conn)["pinged_ns"] = self.kernel.monotonic_ns()
        conn.queue(b"PING\r\n")

    def _ping(self, conn: ClientConn) -> None:
        if conn.closed:
            return
        idle_s = (self.kernel.monotonic_ns() - conn.received_ns) / 1e9
        if idle_s < self.options.ping_interval:
            conn.pings_out = 0
        elif conn.pings_out >= self.options.ping_max:
            conn.refuse("Stale Connection", "Stale Connection")
            return
        if idle_s >= self.options.ping_interval / 2:
            self._send_ping(conn)
        self._arm(conn, self.options.ping_interval, self._ping)

    def pong(self, conn: ClientConn) -> None:
        """A PONG came: it tells how long the way to the client is."""
        detail = self.detail(conn)
        pinged_ns = detail.pop("pinged_ns", 0)
        if pinged_ns:
            detail["rtt_ns"] = self.kernel.monotonic_ns() - pinged_ns

    def _sweep(self) -> None:
        """Deal with receivers that do not read: first let producers go on, then cut them."""
        deadline_ns = int(self.options.write_deadline * 1e9)
        sweep_clients(self.conns.values(), self.kernel.monotonic_ns(), PATIENCE_NS, deadline_ns)
        self._sweeper = self.kernel.loop.call_later(SWEEP_S, self._sweep)

    # --- end ---

    def halt(self) -> None:
        """Hear no more of clients, because the node ends; what is owed to them is still sent."""
        self.leaving = True
        for conn in self.conns.values():
            conn.halt()

    def close_all(self, reason: str = "Server Shutdown") -> None:
        """End every session."""
        self._sweeper.cancel()
        self.checks.stop()
        self.registry.stop()
        for conn in list(self.conns.values()):
            conn.close(reason)


def _quoted(subject: bytes | None) -> str:
    text = (subject or b"").decode("utf-8", "surrogateescape")
    return '"' + "".join(map(_shown, text)) + '"'


def _shown(character: str) -> str:
    """A character between quotes, as nats-server writes it; a byte that is none has its number."""
    code = ord(character)
    if character in "\"\\":
        return "\\" + character
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code & 0xFF:02x}"
    return character if character.isprintable() else f"\\u{code:04x}"
