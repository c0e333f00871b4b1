"""All leaf links of a node, whichever side opened them: admission, interest, liveness, facts."""

import asyncio
import functools
import logging
import socket
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headwater.edge.broker.account import Account
from headwater.edge.broker.authorize import Peer
from headwater.edge.broker.logins.registry import TOO_MANY, Outcome, Session
from headwater.edge.broker.rights.rules import Rules
from headwater.edge.broker.slow_receivers import sweep_slow
from headwater.edge.conf.options import CompressionOptions
from headwater.edge.facts.info import info_fields, info_line
from headwater.edge.facts.peer_address import plain_address
from headwater.edge.jetstream.stream.advisories import Advisories
from headwater.federation.leaf.bounded_interest import SUBJECTS_MAX
from headwater.federation.leaf.compression import (
    AUTO,
    OFF,
    agreed,
    deflates,
    normal,
    normal_options,
    reset,
)
from headwater.federation.leaf.domains import domain_denies
from headwater.federation.leaf.doubts import Doubts
from headwater.federation.leaf.interest import Interest
from headwater.federation.leaf.leaf_conn import LeafConn
from headwater.federation.leaf.leaf_session import (
    HEADWATER_LEVEL,
    LEAF_PROTOCOL,
    LeafSession,
    LinkRules,
)
from headwater.federation.leaf.slow_peers import SlowPeers
from headwater.security.errors import SecurityError
from headwater.security.identity import AuthRequest, Identity, lowest

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView

log = logging.getLogger("headwater.leaf")

PING_INTERVAL_MAX_S = 30.0
"""Links are asked for a sign of life at least this often, whatever clients are asked."""

FIRST_PING_S = 1.0
LOOK_S = 0.125
"""When the round trip of a link is measured that compresses by it; then after twice as long each
time, until that is the interval of all links."""
SWEEP_S = 0.5
PATIENCE_NS = 2_000_000_000
"""Time without progress after which producers no longer wait for a slow link."""

WRITE_DEADLINE_MIN_S = 30.0
"""A link of 64 kbit/s takes seconds for one socket buffer; only true silence ends it."""

KEEPALIVE_IDLE_S = 30

HIDDEN_FROM_LINKS = (
    "connect_urls",
    "client_ip",
    "tls_available",
    "tls_required",
    "tls_verify",
    "xkey",
)
"""Of what INFO says to clients."""
SO_MAX_PACING_RATE = 47
"""Of Linux (asm-generic/socket.h); Python has no name for it."""

NO_PACE = 0xFFFFFFFF


class LeafLinks:
    """The registry of links, and the `Links` of every session."""

    def __init__(self, node: "NodeView") -> None:
        self.node = node
        self.server_id = node.server_id
        self.server_name = node.server_name
        self.cluster = node.options.cluster.name
        self.domain = node.facts.domain
        self.compression = normal_options(node.options.leaf.compression)
        self.rate = node.options.leaf.rate
        """Bytes a second to each who dialled this node; 0 is any number."""
        bounded = node.options.headwater.profile == "edge" and not node.options.max_subscriptions
        self.subjects_max = SUBJECTS_MAX if bounded else 0
        """Subjects of one peer's that are kept; 0 is any number."""
        self.conns: dict[int, LeafConn] = {}
        self.total = 0
        self.failures: dict[object, tuple[str, str]] = {}
        """Of each remote that is not linked: its account, and why the last attempt failed."""
        self.on_link_up: list[Callable[[Account], None]] = []
        """Called with the account of each link that was admitted."""
        self.on_link_down: list[Callable[[Account], None]] = []
        """Called with the account of each of these that has ended."""
        self.advisories = Advisories(node.options.jetstream.domain)
        self.registry = node.sessions.registry
        self._loops: dict[str, bytes] = {}
        self._interest: dict[int, Interest] = {}
        self._details: dict[int, dict[str, Any]] = {}
        self._pings: dict[int, asyncio.TimerHandle] = {}
        self._doubts = Doubts(node.loop)
        self._slow_peers = SlowPeers()
        self._sweeper: asyncio.TimerHandle | None = None
        self.advertise = ""
        """Address told to spokes; empty means the one by which they reached this node."""
        self.isolate = False
        """Keep the interest of one spoke from the others."""
        node.shares.on_change.append(self._remap)

    def why_apart(self, account: str) -> str:
        """Why remotes of an account are not linked, two at most; "" when all are, or none has
        failed."""
        found = [text for name, text in self.failures.values() if name == account]
        return "; ".join(found[:2])

    # --- life of a link ----------------------------------------------------

    def open(self, session: LeafSession, sock: socket.socket, rate: int) -> LeafConn:
        """Make the connection of a new socket; the caller attaches it. `rate` is in bytes a second,
        0 for any."""
        options = self.node.options
        conn = LeafConn(session, self.node.kernel, self.registry.next_cid(), options.max_pending)
        conn.max_payload = options.max_payload
        conn.describe_node = self.node.sessions.describe_node
        conn.headers = not options.no_header_support
        conn.on_closed = self._on_closed
        conn.halts.too_long = functools.partial(self._held_too_long, conn)
        tune(sock)
        conn.share_line(sock, rate)
        if rate:
            pace(sock, rate)
        local, remote = plain_address(sock.getsockname()), plain_address(sock.getpeername())
        self._details[conn.cid] = {
            "ip": remote[0],
            "port": remote[1],
            "local": _address(local[0], local[1]),
            "start": self.node.sessions.now_s(),
            "closed": [],
        }
        self.conns[conn.cid] = conn
        self.total += 1
        if self._sweeper is None:
            self._sweeper = self.node.loop.call_later(SWEEP_S, self._sweep)
        return conn

    def detail(self, conn: LeafConn) -> dict[str, Any]:
        """Address, certificate and start time of a link; empty once it has ended."""
        return self._details.get(conn.cid, {})

    def age_s(self, conn: LeafConn) -> float:
        """Seconds since a link was opened."""
        return float(self.node.sessions.now_s() - self.detail(conn).get("start", 0.0))

    def when_closed(self, conn: LeafConn, action: Callable[[str], None]) -> None:
        """Call `action(reason)` when a link ends."""
        self._details[conn.cid]["closed"].append(action)

    def _on_closed(self, conn: LeafConn, reason: str) -> None:
        self.conns.pop(conn.cid, None)
        self.registry.leave(conn.cid)
        # It refers to the connection, which would keep itself.
        conn.halts.too_long = None
        timer = self._pings.pop(conn.cid, None)
        if timer is not None:
            timer.cancel()
        interest = self._interest.pop(conn.cid, None)
        if interest is not None:
            conn.account.drop_watcher(interest)
            self._announce_link(conn, "down", reason=reason)
            self.node.loop.call_soon(self._link_down, conn.account)
            log.info("%s - Leafnode connection closed: %s", conn.session.label(conn), reason)
        detail = self._details.pop(conn.cid, {})
        for action in detail.get("closed", []):
            action(reason)

    # --- what sessions ask for ----------------------------------------------------

    def admit(self, conn: LeafConn, account: str, rules: LinkRules) -> bool:
        """Bind a link to an account and begin to exchange interest; False when it was refused."""
        bound = self.node.account(account)
        session: LeafSession = conn.session
        if not self.registry.has_room(bound, leaf=True):
            conn.fail(*TOO_MANY)
            return False
        if not session.solicited:
            self._replace_twin(conn, account)
        conn.halts.deaf = self._slow_peers.has(self._owner(conn, account), self.node.loop.time())
        conn.admit(bound, self._principal(conn, bound, rules))
        isolated = session.isolated or (self.isolate and not conn.spoke)
        interest = Interest(conn, isolated)
        self._interest[conn.cid] = interest
        interest.begin(bound, [self.loop_subject(account)])
        self._enter(conn, self.detail(conn).get("identity") or Identity(account=account))
        if session.own_compression().mode == AUTO:
            self.look_again(conn)
        else:
            self._ping_later(conn, FIRST_PING_S)
        self.node.loop.call_soon(self._link_up, bound)
        self._announce_link(conn, "up")
        return True

    def _owner(self, conn: LeafConn, account: str) -> tuple[str, str]:
        """Who made a link, or whom this node dialled."""
        detail = self.detail(conn)
        user = getattr(detail.get("identity"), "user", "")
        return account, user or str(detail.get("ip", ""))

    def _held_too_long(self, conn: LeafConn) -> None:
        """A peer let nothing pass of what it had held back, for a minute and more."""
        self._slow_peers.add(self._owner(conn, conn.account.name), self.node.loop.time())
        log.warning(
            "%s - The peer held messages back for too long: it gets them now, and is cut as a slow "
            "consumer where it takes none",
            conn.session.label(conn),
        )

    def _announce_link(self, conn: LeafConn, what: str, **more: Any) -> None:
        """Publish an advisory in the account of a link."""
        peer, detail = conn.session.peer, self.detail(conn)
        fields = {
            "name": peer.name, "domain": peer.domain, "account": conn.account.name,
            "ip": detail.get("ip", ""), "port": detail.get("port", 0), "is_spoke": conn.spoke,
            "pending_bytes": conn.pending, **more,
        }  # fmt: skip
        self.advisories.leaf_link(conn.account, what, fields)

    def _enter(self, conn: LeafConn, identity: Identity) -> None:
        """Put an admitted link among the sessions of its account."""
        login = not conn.session.solicited
        entered = Session(
            conn,
            conn.account,
            identity,
            is_leaf=True,
            end=conn.fail,
            apply_limits=lambda: self._apply_limits(conn, identity),
            decide=(lambda done: self._decide(conn, done)) if login else None,
            rebind=(lambda found: self._rebind(conn, found)) if login else None,
        )
        self._apply_limits(conn, identity)
        self.registry.enter(entered)

    def _apply_limits(self, conn: LeafConn, identity: Identity) -> None:
        """Of the limits that the node, the account and the user have, the lowest is in force."""
        own, limits, options = identity.limits, conn.account.limits, self.node.options
        session: LeafSession = conn.session
        session.max_subscriptions = lowest(
            own.max_subscriptions,
            limits.get("max_subscriptions", -1),
            options.max_subscriptions or -1,
        )
        wire = max(options.max_payload, session.max_payload)
        conn.max_payload = lowest(own.max_payload, limits.get("max_payload", -1), wire)

    def _rebind(self, conn: LeafConn, identity: Identity) -> None:
        """Put a newly decided identity into force; another account takes another link."""
        if identity.account != conn.account.name:
            conn.fail("Authorization Violation", "Authentication Failure")
            return
        self.detail(conn)["identity"] = identity
        conn.session.permit(conn, identity)
        self._enter(conn, identity)

    def _link_up(self, account: Account) -> None:
        for action in self.on_link_up:
            action(account)

    def _link_down(self, account: Account) -> None:
        for action in self.on_link_down:
            action(account)

    def _remap(self) -> None:
        for cid, interest in self._interest.items():
            interest.remap(self.conns[cid].account)

    def restrict(self, conn: LeafConn, rules: LinkRules) -> None:
        """Change what may pass; announced interest stays, its messages are checked."""
        conn.principal = self._principal(conn, conn.account, rules)

    def _principal(self, conn: LeafConn, account: Account, rules: LinkRules) -> Peer:
        """What a link may do: its rules, with the denies of JetStream domains."""
        options = self.node.options
        peer = conn.session.peer
        both, outgoing = domain_denies(
            own=options.jetstream.domain,
            peer=peer.domain,
            jetstream=options.jetstream.enabled,
            system=account.name == self.node.system_account,
            legacy=options.default_js_domain.get(account.name) == "",
        )
        if options.jetstream.domain != peer.domain:
            log.info(
                "%s - JetStream using domains: local %r, remote %r",
                conn.session.label(conn), options.jetstream.domain, peer.domain,
            )
        asks = rules.receive.denying(both)
        return Peer(
            account,
            comes=asks if conn.spoke else rules.receive,
            # What the user of an accepted link is denied, it may not ask for by an alias either.
            aliased=None if conn.session.solicited else Rules(None, rules.receive.deny),
            leaves=rules.send.denying(both + outgoing),
            wants=None if conn.spoke else rules.send,
            asks=asks,
            # As nats-server has it. What leaves is judged message by message.
            wide=True,
        )

    def _replace_twin(self, conn: LeafConn, account: str) -> None:
        """End an older link of the same server: it is dead, and would look like a loop."""
        new = conn.session.peer
        for old in self.of_account(account):
            peer = old.session.peer
            if (
                old is not conn
                and not old.session.solicited
                and new.name
                and new.account
                and (peer.name, peer.cluster, peer.account) == (new.name, new.cluster, new.account)
            ):
                log.warning(
                    "%s - Replacing connection from same server", conn.session.label(conn)
                )
                reason = "Duplicate Remote LeafNode Connection"
                old.fail(reason, reason)

    def of_account(self, account: str) -> list[LeafConn]:
        """Admitted links of an account."""
        return [c for c in self.conns.values() if c.ready and c.account.name == account]

    def loop_subject(self, account: str) -> bytes:
        """This node's own loop detection subject of an account."""
        found = self._loops.get(account)
        if found is None:
            found = b"$LDS." + self.node.kernel.chance.randbytes(11).hex().encode()
            self._loops[account] = found
        return found

    def authenticate(
        self,
        conn: LeafConn,
        fields: Mapping[str, Any],
        nonce: bytes,
        done: Callable[[Identity | SecurityError], None],
    ) -> None:
        """Call `done` with who a peer is that dialled this node, or why it is refused."""
        detail = self.detail(conn)
        detail["login"] = fields, nonce

        def decided(outcome: Outcome) -> None:
            if isinstance(outcome, Identity):
                detail["identity"] = outcome
            done(outcome)

        self._decide(conn, decided)

    def _decide(self, conn: LeafConn, done: Callable[[Outcome], None]) -> None:
        """Call `done` with the identity that a peer has by what it presented, or why none."""
        options = self.node.options.leaf
        detail = self.detail(conn)
        fields, nonce = detail["login"]
        tls = self.node.options.websocket.tls if "websocket" in detail else options.tls
        request = AuthRequest(
            connect=fields,
            nonce=nonce,
            connection_type="LEAFNODE_WS" if "websocket" in detail else "LEAFNODE",
            is_leaf=True,
            host=str(detail.get("ip", "")),
            certificate=detail.get("certificate"),
            map_certificate=bool(tls and tls.verify_and_map),
            now=self.node.sessions.now_s(),
        )
        self.node.sessions.checks.decide(
            conn,
            request,
            lambda asked: self.node.authenticator.authenticate_leaf(asked, options.authorization),
            done,
        )

    def hub_info(self, conn: LeafConn, nonce: str, **extra: Any) -> bytes:
        """INFO line of the accepting side."""
        detail = self.detail(conn)
        options = self.node.options.leaf
        fields = info_fields(
            self.node.facts, cid=conn.cid, client_ip=str(detail.get("ip", "")), nonce=nonce
        )
        for key in HIDDEN_FROM_LINKS:
            fields.pop(key, None)
        cluster = self.node.options.cluster
        if not cluster.port and not cluster.name:
            # A node alone is no cluster to who dials it: loops are found by what comes back.
            fields.pop("cluster", None)
        address = self.advertise or str(detail.get("local", ""))
        host, _, port = address.rpartition(":")
        fields.update(
            proto=LEAF_PROTOCOL,
            host=host.strip("[]"),
            port=int(port) if port.isdigit() else 0,
            auth_required=True,
            info_on_connect=True,
            headwater=HEADWATER_LEVEL,
            leafnode_urls=[address],
        )
        if self.compression.mode != OFF and not deflates(conn):
            fields["compression"] = self.compression.mode
        # TLS of a WebSocket is below its frames: the spoke must not begin another.
        if options.tls is not None and "websocket" not in detail:
            fields["tls_required"] = True
            fields["tls_verify"] = options.tls.verify or options.tls.verify_and_map
        fields.update(extra)
        return info_line(fields)

    def agree(self, conn: LeafConn, own: CompressionOptions, peer: str) -> str:
        """The mode of compression of this end. Raises ValueError for a peer's that is unknown."""
        if own.mode == OFF or not peer or deflates(conn):
            return OFF
        return agreed(own.mode, normal(peer), self.age_s(conn), own.rtt_thresholds)

    def reload(self) -> None:
        """Other options are in force: those who dialled this node go by its new compression, and
        get so many bytes a second as they say."""
        rate, self.rate = self.rate, self.node.options.leaf.rate
        if rate != self.rate:
            log.info("Reloaded: LeafNode rate value is: %d", self.rate)
            for conn in self.conns.values():
                if not conn.session.solicited and conn.sock is not None:
                    pace(conn.sock, self.rate)
        compression = normal_options(self.node.options.leaf.compression)
        if compression == self.compression:
            return
        self.compression = compression
        log.info("Reloaded: LeafNode compression value is: %s", compression.mode)
        for conn in list(self.conns.values()):
            if not conn.session.solicited:
                self.recompress(conn)

    def recompress(self, conn: LeafConn) -> None:
        """Have a link go by the compression that its end is set to now, or end it: it comes back
        with what both ends agree on."""
        session: LeafSession = conn.session
        mode = reset(conn, session.own_compression(), session.compression)
        if mode is None:
            conn.close("Client Closed")
        else:
            session.compression = mode

    # --- liveness ----------------------------------------------------

    def doubt(self, account: str) -> None:
        """Somebody misses answers by a link of an account: those that are dead end soon."""
        for conn in self.of_account(account):
            self._doubts.doubt(conn)

    def look_again(self, conn: LeafConn) -> None:
        """As of Links."""
        timer = self._pings.pop(conn.cid, None)
        if timer is not None:
            timer.cancel()
        self._ping_later(conn, LOOK_S, 2 * LOOK_S)

    def _ping_later(self, conn: LeafConn, delay: float, then: float = PING_INTERVAL_MAX_S) -> None:
        self._pings[conn.cid] = self.node.loop.call_later(delay, self._ping, conn, then)

    def _ping(self, conn: LeafConn, then: float) -> None:
        """Ask for a sign of life, and again after `then` seconds at most. Any byte from the peer
        since the last PING proves that it lives."""
        if conn.closed:
            return
        options = self.node.options
        interval = min(options.ping_interval, PING_INTERVAL_MAX_S)
        if conn.session.interest.missing(len(conn.subs)):
            conn.close("Interest Told Anew")
            return
        if self.node.kernel.monotonic_ns() - conn.received_ns < interval * 1e9:
            conn.pings_out = 0
        elif conn.pings_out >= options.ping_max:
            conn.fail("Stale Connection", "Stale Connection")
            return
        if not conn.pinged_ns or then >= interval:
            conn.session.ping(conn)
        self._ping_later(conn, min(interval, then), min(interval, 2 * then))

    def _sweep(self) -> None:
        """Deal with links that do not take their bytes."""
        options = self.node.options
        deadline = options.leaf.write_deadline or options.write_deadline
        deadline_ns = int(max(deadline, WRITE_DEADLINE_MIN_S) * 1e9)
        now_ns = self.node.kernel.monotonic_ns()
        for conn, idle_ns in sweep_slow(self.conns.values(), now_ns, PATIENCE_NS, deadline_ns):
            if conn.ready:
                self._announce_link(conn, "stalled", seconds=round(idle_ns / 1e9, 3))
        self._sweeper = self.node.loop.call_later(SWEEP_S, self._sweep) if self.conns else None

    # --- facts ----------------------------------------------------

    def status(self, account: str = "", lists: bool = True) -> list[dict[str, Any]]:
        """One record per admitted link, perhaps of one account, with the fields of /leafz and
        `headwater` beside them; `lists` is whether its subscriptions are listed."""
        return [
            self._describe(conn, lists)
            for conn in self.conns.values()
            if conn.ready and account in ("", conn.account.name)
        ]

    def _describe(self, conn: LeafConn, lists: bool) -> dict[str, Any]:
        detail = self.detail(conn)
        peer = conn.session.peer
        return {
            "id": conn.cid,
            "name": peer.name,
            "is_spoke": conn.spoke,
            "account": conn.account.name,
            "ip": detail.get("ip", ""),
            "port": detail.get("port", 0),
            "rtt": f"{conn.rtt_ns / 1e6:.3f}ms",
            "in_msgs": conn.in_msgs,
            "out_msgs": conn.out_msgs,
            "in_bytes": conn.in_bytes,
            "out_bytes": conn.out_bytes,
            "subscriptions": len(conn.subs),
            **(_lists(conn) if lists else {}),
            "compression": conn.session.compression,
            "headwater": {
                "domain": peer.domain,
                "cluster": peer.cluster,
                "server_id": peer.server_id,
                "since": detail.get("start", 0.0),
                "pending_bytes": conn.pending,
                "stalls": conn.stalls,
                "interest": conn.session.interest.status(),
                "seconds_silent": (self.node.kernel.monotonic_ns() - conn.received_ns) / 1e9,
            },
        }

    def close_all(self, reason: str = "Server Shutdown") -> None:
        """End every link."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for conn in list(self.conns.values()):
            conn.close(reason)


def _lists(conn: LeafConn) -> dict[str, Any]:
    return {"subscriptions_list": [name.decode("utf-8", "replace") for name, _ in conn.subs]}


def tune(sock: socket.socket) -> None:
    """Set a link's socket up for small control lines among bulk data, and for silent deaths."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)


def pace(sock: Any, rate: int) -> None:
    """Have the system send at most `rate` bytes a second; 0: as many as it can."""
    try:
        most = struct.pack("@I", rate or NO_PACE)
        sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, most)
    except OSError as error:
        log.warning("the system cannot keep a link to %d bytes a second: %s", rate, error)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
