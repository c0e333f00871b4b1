"""All routes of a node: who is connected, what is told to whom, and whether it is alive.

Between two nodes there is a pool of routes that accounts share, each account having its place in
it, and one more route for each account of `cluster.accounts`. A place that both ends have dialled
for keeps the route of the node with the lower id, so both keep the same one.
"""

import asyncio
import contextlib
import functools
import logging
import secrets
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from headwater.edge.broker.account import Account
from headwater.edge.broker.authorize import Peer
from headwater.edge.broker.conn import LOGIN_BYTES
from headwater.edge.broker.rights.rules import Rules
from headwater.edge.broker.slow_receivers import sweep_slow
from headwater.edge.conf.options import ClusterOptions, CompressionOptions, OCSPPeerOptions
from headwater.edge.facts.version import NATS_LEVEL
from headwater.federation.leaf.compression import ACCEPT, AUTO, agreed, normal, normal_options
from headwater.federation.leaf.leaf_session import encoded
from headwater.hub.routes.advertised import Advertised, with_port
from headwater.hub.routes.configured import ConfiguredRoutes
from headwater.hub.routes.dialer import Dialer, is_address
from headwater.hub.routes.fences import Fences
from headwater.hub.routes.gossip import address_of, gossip_mode, heard_by_gossip
from headwater.hub.routes.kept_inboxes import KeptInboxes
from headwater.hub.routes.peer_routes import PeerRoutes, pool_index
from headwater.hub.routes.route_conn import RouteConn
from headwater.hub.routes.route_interest import RouteInterest
from headwater.hub.routes.session import (
    RouteConnect,
    RouteInfo,
    RouteSession,
    SubjectLists,
    info_line,
)
from headwater.hub.routes.status import describe
from headwater.security.auth_options import AuthOptions, PermissionOptions, SubjectRules
from headwater.security.authenticator import check_single
from headwater.security.errors import SecurityError
from headwater.security.identity import AuthRequest

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView

log = logging.getLogger("headwater.route")

PING_INTERVAL_MAX_S = 30.0
DOUBT_S = 5.0
"""How long a route may say nothing after its peer has opened another one."""
TCP_RTO_MAX_MS = 44
"""Of Linux 6.15 and later, and not in Python yet."""
TRY_MS = 2000
"""At most so long after a line is back the system sends what was lost on it. By itself it doubles
the pause each time, so after a cut of 30 s a route may be still for as long again."""
PATIENCE_MS = 120_000
"""For which the system tries. It counts tries otherwise, and would end a route after half a minute.
PINGs end it before."""
FIRST_PING_S = 1.0
"""The first one comes early: round trips choose the compression."""

SWEEP_S = 0.5
PATIENCE_NS = 2_000_000_000
"""Time without progress after which producers no longer wait for a slow route."""

FRAMES_VERSION = 10
"""Of what nodes say to each other, in INFO; see `cluster.transport`. From 2 on there are fences,
from 3 on packets of groups with rows and pace, from 4 on questions of replicas, from 6 on peers
that hold back messages for which there is no room (5 knew no patterns), from 7 on messages for the
heir of an inbox alone, from 8 on word of it to its node, from 9 on questions about deliveries that
may be old, from 10 on packets of groups that say of what their groups are."""

HOLDS_VERSION = 6

HANDSHAKE_S = 2.0
"""Time that a peer has to introduce itself when `authorization.timeout` says nothing."""

POOL_DEFAULT = 3
POOL_MAX = 256
"""Routes that a peer may want as a pool; more is no pool."""

DIALERS_MAX = 1000
"""Addresses that are dialled because other nodes have told of them."""


def try_often(sock: socket.socket) -> None:
    """Have the system soon send again what a line has lost, where it can be told to."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS, TRY_MS)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, PATIENCE_MS)


class Routes:
    """The registry of routes, and the `Registry` of their sessions."""

    def __init__(self, node: "NodeView") -> None:
        self.node = node
        self.options = node.options.cluster
        self.server_id = node.server_id
        self.server_name = node.server_name
        self.dynamic = not self.options.name
        self.cluster = self.options.name or secrets.token_urlsafe(16)
        self.port = 0
        self.size = pool_size(self.options)
        """Routes of the pool that this node wants; 0 without pools."""
        self.pinned = self._own_pinned = pinned_accounts(node) if self.size else frozenset()
        """Accounts that have a route of their own: by this node's configuration, or because a peer
        has given them one since."""
        self.compression = compression_of(self.options)
        self.tls_name = name_of(self.options.routes)
        self.conns: dict[int, RouteConn] = {}
        """Every connection that is open, whether or not it has introduced itself."""
        self.peers: dict[str, PeerRoutes] = {}
        """The routes to each node, by its id."""
        self.dialers: list[Dialer] = []
        self._configured = ConfiguredRoutes(self)
        self.fences = Fences(self.server_id, node.loop)
        self._live: list[RouteConn] = []
        self._interest: dict[str, RouteInterest] = {}
        self._started: dict[int, tuple[int, int]] = {}
        self._pings: dict[int, asyncio.TimerHandle] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._advertised = Advertised(node)
        self._ignored: frozenset[bytes] = frozenset()
        self._principal = route_principal(self.options.permissions)
        self._leaving = False
        self._stopping = False
        self.peer_watchers: list[Callable[[RouteConn, bool], None]] = []
        """Called with the route on which a node speaks: when it has come up or another one has
        taken its place, and when the last one has ended."""
        self.route_watchers: list[Callable[[RouteConn], None]] = []
        """Called with each route that is up, behind the interest that it was told, and before
        anything else is said on it."""
        self.on_frame: Callable[[RouteConn, bytes, bytes], None] | None = None
        """Takes what other nodes say to this one; see `cluster.transport`."""
        self._kept_inboxes = KeptInboxes(node, self)
        node.facts.cluster = self.cluster

    def _reloaded(self) -> None:
        """Other options are in force, those of the log, too: end the routes whose credentials
        are right no more, and all when what both ends agreed on has changed. Those are dialled
        again."""
        old, self.options = self.options, self.node.options.cluster
        size, compression = pool_size(self.options), compression_of(self.options)
        pinned = pinned_accounts(self.node) if size else frozenset()
        other_rules = self.options.permissions != old.permissions
        agreed_on = (self.size, self.compression, self._own_pinned)
        anew = other_rules or (size, compression, pinned) != agreed_on
        if anew:
            self.size, self.compression = size, compression
            self.pinned = self._own_pinned = pinned
        for name, interest in self._interest.items():
            interest.pool_index = pool_index(size, name.encode())
        for conn in list(self.conns.values()):
            conn.trace_protocol()
            session: RouteSession = conn.session
            if anew:
                conn.close("Configuration Reloaded")
            elif session.connect is not None:
                self.judge(conn, session.connect, functools.partial(self._judged, conn))
        if other_rules:
            self._judge_interest()
        self.tls_name = name_of(self.options.routes)
        self._configured.follow(self.options.routes)

    def _judge_interest(self) -> None:
        """Other permissions are in force: what the nodes are told of is found anew."""
        self._principal = route_principal(self.options.permissions)
        for account in list(self.node.accounts.values()):
            self._interest[account.name].stop()
            self._count(account)

    def _judged(self, conn: RouteConn, outcome: Any) -> None:
        if isinstance(outcome, SecurityError):
            conn.fail("Authorization Violation", "Authentication Failure")

    # --- begin and end ---

    def begin(self, port: int) -> None:
        """The client listener is there: tell clients of it, and dial."""
        node = self.node
        self.port, self.options = port, node.options.cluster
        self._ignored = _jetstream_api(node)
        for account in list(node.accounts.values()):
            self._watch(account)
        node.account_hooks.append(self._watch)
        node.farewells.append(self._leave)
        node.reload_hooks.append(self._reloaded)
        self._advertised.find()
        self._tell_clients()
        self._configured.follow(self.options.routes)
        self._sweeper = node.loop.call_later(SWEEP_S, self._sweep)

    def _watch(self, account: Account) -> None:
        self._count(account)
        for conn in self._live:
            conn.account_made(account)

    def _count(self, account: Account) -> None:
        name = account.name
        index = pool_index(self.size, name.encode())
        self._interest[name] = RouteInterest(account, index, self._principal)
        for peer in self.peers.values():
            self._assign_interest(peer, name)

    def _assign_interest(self, peer: PeerRoutes, name: str) -> None:
        """Have a node know of one account's interest, on the route that the account has to it."""
        interest = self._interest[name]
        carrier = peer.carrier(name, interest.pool_index, self.pinned)
        for conn in peer.all():
            if conn is not carrier:
                interest.leave(conn)
        if carrier is not None:
            interest.join(carrier)

    async def stop(self) -> None:
        """Stop dialling and end every route."""
        self._stopping = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for dialer in self.dialers:
            await dialer.stop()
        for conn in list(self.conns.values()):
            conn.close("Server Shutdown")
        for interest in self._interest.values():
            interest.stop()

    def dial(self, url: str, *, implicit: bool, gossip: int = 0) -> Dialer:
        """Keep up the routes to an address from now on."""
        dialer = Dialer(self, url, implicit=implicit, gossip=gossip)
        self.dialers.append(dialer)
        dialer.start()
        return dialer

    # --- life of a route ---

    def open(self, session: RouteSession, sock: socket.socket) -> RouteConn:
        """Make the connection of a new socket; the caller attaches it."""
        node = self.node
        conn = RouteConn(
            session,
            node.kernel,
            node.sessions.registry.next_cid(),
            node.options.max_pending,
            node.known_account,
        )
        conn.headers = not node.options.no_header_support
        conn.ignored = self._ignored
        conn.principal = self._principal
        conn.describe_node = node.sessions.describe_node
        conn.on_frame = self._frame
        conn.on_closed = self._on_closed
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        try_often(sock)
        session.opened_ns = node.kernel.clock()
        if not session.solicited:
            conn.allowance = LOGIN_BYTES
        self.conns[conn.cid] = conn
        self._started[conn.cid] = (time.time_ns(), node.kernel.monotonic_ns())
        timeout = self.options.authorization.timeout or HANDSHAKE_S
        node.loop.call_later(timeout, self._handshake_expired, conn)
        return conn

    def _frame(self, conn: RouteConn, kind: bytes, frame: bytes) -> None:
        if not self._kept_inboxes.receive(conn, kind, frame) and self.on_frame is not None:
            self.on_frame(conn, kind, frame)

    def _handshake_expired(self, conn: RouteConn) -> None:
        if conn.deciding:
            self.node.loop.call_later(HANDSHAKE_S, self._handshake_expired, conn)
        elif not conn.ready and not conn.closed:
            conn.fail("Authentication Timeout", "Authentication Timeout")

    def _on_closed(self, conn: RouteConn, reason: str) -> None:
        self.conns.pop(conn.cid, None)
        self._started.pop(conn.cid, None)
        timer = self._pings.pop(conn.cid, None)
        if timer is not None:
            timer.cancel()
        session: RouteSession = conn.session
        if conn in self._live:
            self._live.remove(conn)
            for interest in self._interest.values():
                interest.leave(conn)
            log.info("%s - Router connection closed: %s", session.label(conn), reason)
        self.fences.gone(conn)
        peer = self.peers.get(session.peer.server_id)
        if peer is not None and peer.remove(conn):
            if not any(peer.all()):
                del self.peers[peer.server_id]
                self._tell_clients()
            self._choose_speaker(peer)
        session.resolve()

    def _choose_speaker(self, peer: PeerRoutes) -> None:
        """Have nodes speak on the system account's route, where no tenant's messages are before
        them; on a shared one without it, and on the same one while it is there."""
        old = peer.speaker
        system = peer.pinned.get(self.node.system_account)
        if old is not None and (old is system or (system is None and old in peer.pool)):
            return
        peer.speaker = system or peer.shared()
        if peer.speaker is not None:
            self._tell_watchers(peer.speaker, True)
        elif old is not None:
            self._tell_watchers(old, False)

    # --- what sessions ask for ---

    def own_info(self, session: RouteSession, compression: str) -> RouteInfo:
        """What this node says of itself on one route."""
        facts, options = self.node.facts, self.options
        rules = options.permissions or PermissionOptions()
        silent = options.no_advertise
        return RouteInfo(
            server_id=self.server_id,
            server_name=self.server_name,
            version=NATS_LEVEL,
            go="python",
            host=options.host,
            port=self.port,
            headers=facts.headers,
            max_payload=facts.max_payload,
            auth_required=bool(options.authorization.user),
            tls_required=options.tls is not None,
            tls_verify=options.tls is not None,
            jetstream=facts.jetstream,
            ip=advertised_url(options.advertise, self.port),
            cluster=self.cluster,
            cluster_dynamic=self.dynamic,
            domain=facts.domain,
            connect_urls=[] if silent else self._advertised.urls,
            ws_connect_urls=[] if silent else self._advertised.ws_urls,
            ldm=self._leaving,
            imports=_announced_rules(rules.publish),
            export=_announced_rules(rules.subscribe),
            route_pool_size=self.size,
            route_pool_idx=session.pool_index if session.solicited else 0,
            route_account=session.account if session.solicited else "",
            compression=compression,
            gossip_mode=session.gossip if session.solicited else 0,
            lnoc=True,
            lnocu=True,
            headwater=FRAMES_VERSION,
        )

    def peer_demands(self) -> OCSPPeerOptions | None:
        """What is asked about the certificate of a peer: its status, where this node staples."""
        context = self.node.tls.cluster
        stapled = context is not None and context.staple is not None
        return OCSPPeerOptions(verify=True) if stapled else None

    def agree(self, session: RouteSession, peer: str) -> str:
        """This end's mode of compression. Raises ValueError for a peer's that is unknown."""
        rtt = (self.node.kernel.clock() - session.opened_ns) / 1e9
        own = self.compression
        return agreed(own.mode, normal(peer), rtt, own.rtt_thresholds)

    def judge(
        self, conn: RouteConn, connect: RouteConnect, done: Callable[[Any], None]
    ) -> None:
        """Call `done` with an Identity when a dialler's credentials are right, or AuthError."""
        session: RouteSession = conn.session
        listener = AuthOptions(
            user=self.options.authorization.user, password=self.options.authorization.password
        )
        request = AuthRequest(
            connect={"user": connect.user, "pass": connect.password},
            is_leaf=True,
            host=session.address[0],
        )
        self.node.sessions.checks.decide(
            conn, request, lambda asked: check_single(listener, asked), done
        )

    def agree_on_cluster(self, name: str, dynamic: bool) -> bool:
        """Whether the peer's cluster is this node's; a made-up name gives way."""
        if not name or name == self.cluster:
            return True
        if not self.dynamic or (dynamic and name < self.cluster):
            return False
        log.info("Cluster name updated to %s", name)
        self.cluster = self.node.facts.cluster = name
        self.dynamic = dynamic
        return True

    def has(self, server_id: str) -> bool:
        """Whether there is a route to that node."""
        return server_id in self.peers

    def missing(self, server_id: str) -> list[str]:
        """What is to be dialled for to have all routes to a node: "" stands for a shared one, a
        name for the route of an account. A node that is not connected begins with a shared one."""
        peer = self.peers.get(server_id)
        if peer is None:
            return [""]
        if not peer.pooled:
            return []
        shared = [""] if peer.free() >= 0 else []
        return shared + [name for name in sorted(self.pinned) if name not in peer.pinned]

    def rival(self, conn: RouteConn) -> RouteConn | None:
        """The route that has the place of a new one, when only the peer knows which one stays.

        Without pools nats-server stays with what it registered first, whoever has dialled it. It
        answers over that one, and ends the other.
        """
        session: RouteSession = conn.session
        peer = self.peers.get(session.peer.server_id)
        if session.solicited or session.peer.headwater or peer is None or peer.pooled:
            return None
        old = peer.at("", 0)
        if old is None or not old.session.solicited or old.session.accepted:
            return None
        self.doubt(old)
        return old

    def register(self, conn: RouteConn) -> bool:
        """Begin to use a route; False when it is superfluous, or was refused."""
        session: RouteSession = conn.session
        info, account = session.peer, session.account
        conn.origins = info.lnoc and info.lnocu
        pooled = 0 < info.route_pool_size <= POOL_MAX and self.size > 0
        size = max(self.size, info.route_pool_size) if pooled else 1
        refusal = self._refusal(session, pooled, size)
        if refusal:
            log.error("%s - %s", session.label(conn), refusal)
            conn.fail(refusal, "Protocol Violation")
            return False
        peer = self.peers.get(info.server_id)
        if peer is None:
            peer = PeerRoutes(server_id=info.server_id, pooled=pooled, pool=[])
        peer.grow(size)
        if not pooled:
            session.pool_index = 0
        elif session.solicited and not account:
            session.pool_index = peer.free()
            if session.pool_index < 0:
                return False
        old = peer.at(account, session.pool_index)
        if old is not None and self._keeps(old, conn):
            self.doubt(old)
            return False
        self._use(conn, peer, old)
        return True

    def _refusal(self, session: RouteSession, pooled: bool, size: int) -> str:
        """Why a route to that place cannot be; empty when it can."""
        account = session.account
        if account and not pooled:
            return f'Not possible to have a dedicated route for account "{account}"'
        if account and account not in self.pinned:
            return f'No route for account "{account}"'
        if pooled and not session.solicited and not 0 <= session.pool_index < size:
            return f"Invalid route pool index: {session.pool_index} - pool size is {size}"
        return ""

    def _use(self, conn: RouteConn, peer: PeerRoutes, old: RouteConn | None) -> None:
        """A route takes its place, that of an old one if need be."""
        session: RouteSession = conn.session
        account = session.account
        first = not any(peer.all())
        news = bool(account) or peer.shared() is None
        self.peers[peer.server_id] = peer
        peer.put(conn, account, session.pool_index)
        if account:
            conn.dedicate(account.encode())
        conn.holds_back = session.peer.headwater >= HOLDS_VERSION
        if session.solicited:
            line = info_line(self.own_info(session, self._announced_mode(session)))
            conn.queue(line)
        conn.ready = True
        conn.prove()
        if old is not None:
            old.close("Duplicate Route")
        self._live.append(conn)
        for name in [account] if account else self._interest:
            self._assign_interest(peer, name)
        log.info("%s - Route to %s is up", session.label(conn), session.peer.server_name)
        if news:
            self._forward(conn)
        if first:
            self._tell_clients()
        if session.solicited:
            # The dialer goes on when the peer has answered, and so has accepted the route.
            conn.ping(behind=True)
        self._ping_later(conn, FIRST_PING_S)
        self._choose_speaker(peer)
        for watcher in self.route_watchers:
            watcher(conn)

    def _announced_mode(self, session: RouteSession) -> str:
        """How INFO names the mode of compression that was agreed on."""
        mode = self.compression.mode
        return mode if mode == AUTO else session.compression

    def _tell_watchers(self, conn: RouteConn, there: bool) -> None:
        for watcher in self.peer_watchers:
            watcher(conn, there)

    def _keeps(self, old: RouteConn, conn: RouteConn) -> bool:
        """Whether an old route stays, and a new one to its place goes.

        Both ends have to say the same, or no route is left. What both use stays, as with
        nats-server. If both have dialled at once, nats-server stays with what it dialled itself,
        and two nodes of ours with what the one of the lower id has dialled.
        """
        before: RouteSession = old.session
        session: RouteSession = conn.session
        if before.solicited == session.solicited:
            # Who dials again has seen that the old one is gone. This node itself has not: two of
            # its dialers, for a configured address and one it was told of, lead to one place.
            return bool(before.solicited)
        if before.accepted or not before.solicited:
            return True
        return bool(session.peer.headwater) and self.server_id < session.peer.server_id

    def doubt(self, conn: RouteConn) -> None:
        """A peer has opened another route, or another node has its name: if this one says nothing
        soon, it is half open."""
        heard = conn.received_ns
        conn.ping()
        self.node.loop.call_later(DOUBT_S, self._silent_since, conn, heard)

    def _silent_since(self, conn: RouteConn, heard: int) -> None:
        if not conn.closed and conn.received_ns == heard:
            conn.fail("Stale Connection", "Stale Connection")

    def _forward(self, conn: RouteConn) -> None:
        """Tell the others of a new node, or of its route for an account, so that they connect."""
        session: RouteSession = conn.session
        if not heard_by_gossip(session):
            return
        info = msgspec.structs.replace(session.peer, route_account=session.account)
        if not info.ip:
            host = session.address[0]
            shown = f"[{host}]" if ":" in host else host
            info.ip = f"nats-route://{shown}:{info.port}/"
        for peer in self.peers.values():
            other = peer.pinned.get(session.account) or peer.shared()
            if peer.server_id == info.server_id or other is None:
                continue
            if session.account and not peer.pooled:
                continue
            info.gossip_mode = gossip_mode(session, other.session)
            other.queue(info_line(info))

    def unanswered(self) -> list[str]:
        """Configured routes that have not led to a node yet."""
        return [f"{d.host}:{d.port}" for d in self.dialers if not d.implicit and not d.answered]

    def heard_of(self, info: RouteInfo) -> None:
        """Connect to a node that another one has told of."""
        address = address_of(info)
        if self._stopping or address is None or info.server_id == self.server_id:
            return
        if not self.missing(info.server_id):
            return
        if any(dialer.busy and dialer.leads_to(*address) for dialer in self.dialers):
            return
        user = self.options.authorization
        login = f"{user.user}:{user.password}@" if info.auth_required and user.user else ""
        self.dialers = [dialer for dialer in self.dialers if dialer.busy]
        if len(self.dialers) < DIALERS_MAX:
            netloc = urlsplit(info.ip).netloc.rpartition("@")[2]
            self.dial(f"nats-route://{login}{netloc}", implicit=True, gossip=info.gossip_mode)

    def peer_changed(self, conn: RouteConn, info: RouteInfo) -> None:
        """A peer tells something new of itself: mostly that it is about to leave."""
        peer = self.peers.get(info.server_id)
        for each in peer.all() if peer is not None else ():
            known: RouteInfo = each.session.peer
            known.connect_urls = [] if info.ldm else info.connect_urls
            known.ws_connect_urls = [] if info.ldm else info.ws_connect_urls
            known.imports, known.export = info.imports, info.export
        self._tell_clients()

    def account_moves(self, conn: RouteConn, info: RouteInfo) -> None:
        """A peer gives an account a route of its own: take its interest from the shared ones, and
        confirm. It is told again on the new route."""
        name = info.route_account
        if not name or not self.size:
            return
        self.pinned |= {name}
        for peer in self.peers.values():
            for shared in peer.pool if peer.pooled else ():
                if shared is not None:
                    shared.forget_account(name.encode())
            if name in self._interest:
                self._assign_interest(peer, name)
        conn.queue(info_line(msgspec.structs.replace(info, route_account="")))

    def fenced(self, conn: RouteConn, number: int) -> None:
        """A peer has heard all that was said before a fence."""
        self.fences.passed(conn, number)

    async def fence(self, server_id: str) -> None:
        """Return when a node has heard all that was said to it on any route, and all that it had
        said before is here. What a route that ends meanwhile still had to say is lost."""
        peer = self.peers.get(server_id)
        await self.fences.wait(peer.all() if peer is not None else ())

    def beside(self, server_id: str, account: str) -> RouteConn | None:
        """The route on which a node is told of an account's interest and gets its messages."""
        peer, interest = self.peers.get(server_id), self._interest.get(account)
        if peer is None or interest is None:
            return None
        return peer.carrier(account, interest.pool_index, self.pinned)

    def all_routes(self) -> list[RouteConn]:
        """Every route that is up."""
        return list(self._live)

    # --- what clients are told ---

    def _tell_clients(self) -> None:
        """Bring INFO's list of nodes up to date."""
        known = (next(peer.all()).session.peer for peer in self.peers.values())
        self._advertised.refresh(known, leaving=self._leaving)

    def _leave(self) -> None:
        """Lame duck mode: clients shall look for other nodes."""
        self._leaving = True
        for peer in self.peers.values():
            conn = peer.shared() or next(peer.all())
            conn.queue(info_line(self.own_info(conn.session, "")))
        self._tell_clients()

    # --- liveness ---

    def _ping_later(self, conn: RouteConn, most: float = PING_INTERVAL_MAX_S) -> None:
        node = self.node.options
        interval = min(self.options.ping_interval or node.ping_interval, PING_INTERVAL_MAX_S)
        delay = min(interval, most)
        self._pings[conn.cid] = self.node.loop.call_later(delay, self._ping, conn, interval)

    def _ping(self, conn: RouteConn, interval: float) -> None:
        if conn.closed:
            return
        limit = self.options.ping_max or self.node.options.ping_max
        if self.node.kernel.monotonic_ns() - conn.received_ns < interval * 1e9:
            conn.pings_out = 0
        elif conn.pings_out >= limit:
            conn.fail("Stale Connection", "Stale Connection")
            return
        conn.ping()
        self._ping_later(conn)

    def _sweep(self) -> None:
        """Deal with routes that do not take their bytes."""
        options = self.node.options
        deadline_ns = int((self.options.write_deadline or options.write_deadline) * 1e9)
        now_ns = self.node.kernel.monotonic_ns()
        sweep_slow(self.conns.values(), now_ns, PATIENCE_NS, deadline_ns)
        self._sweeper = self.node.loop.call_later(SWEEP_S, self._sweep)

    # --- facts ---

    def status(self, lists: bool = True) -> list[dict[str, Any]]:
        """One record per route, in the fields of /routez; `lists` is whether its subscriptions are
        listed."""
        now_ns = self.node.kernel.monotonic_ns()
        return [describe(conn, *self._started[conn.cid], now_ns, lists) for conn in self._live]


def pool_size(options: ClusterOptions) -> int:
    """Routes of the pool that a configuration asks for; 0 without pools."""
    return min(options.pool_size or POOL_DEFAULT, POOL_MAX) if options.pool_size >= 0 else 0


def pinned_accounts(node: "NodeView") -> frozenset[str]:
    """Accounts that have a route of their own: those that are configured, and the system's."""
    system = [node.system_account] if node.has_system else []
    return frozenset((*node.options.cluster.accounts, *system))


def name_of(urls: list[str]) -> str:
    """The first name of a host among the URLs of routes; empty where all are addresses."""
    hosts = [urlsplit(url).hostname or "" for url in urls]
    return next((host for host in hosts if host and not is_address(host)), "")


def compression_of(options: ClusterOptions) -> CompressionOptions:
    """How routes are set: they compress when the other end wants to, unless it is said."""
    if not options.compression.mode:
        return CompressionOptions(mode=ACCEPT)
    return normal_options(options.compression)


def advertised_url(advertise: str, port: int) -> str:
    """The URL of `cluster.advertise`; empty without."""
    if not advertise:
        return ""
    return f"nats-route://{with_port(advertise, port)}/"


def _announced_rules(rules: SubjectRules | None) -> SubjectLists | None:
    if rules is None:
        return None
    return SubjectLists(allow=rules.allow, deny=rules.deny or None)


def route_principal(options: PermissionOptions | None) -> Peer:
    """What may pass a route, by `cluster.permissions`."""
    if options is None:
        return Peer(acks_leave=True)
    comes, leaves = _rules(options.publish), _rules(options.subscribe)
    return Peer(comes=comes, asks=comes, leaves=leaves, wants=leaves, acks_leave=True)


def _rules(rules: SubjectRules | None) -> Rules:
    if rules is None:
        return Rules()
    return Rules(None if rules.allow is None else encoded(rules.allow), encoded(rules.deny))


def _jetstream_api(node: "NodeView") -> frozenset[bytes]:
    """What a node with JetStream does itself, whoever else offers it: to refuse requests of
    accounts without, and to make a request of the domain's API one of `$JS.API`, which then goes
    to the other nodes."""
    if node.jetstream is None:
        return frozenset()
    domain = node.facts.domain
    return frozenset((b"$JS.API.>", f"$JS.{domain}.API.>".encode()) if domain else (b"$JS.API.>",))
