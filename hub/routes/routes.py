"""All routes of a node: who is connected, what is told to whom, and whether it is alive."""

import asyncio
import functools
import logging
import secrets
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headwater.edge.broker.account import Account
from headwater.edge.broker.authorize import Peer
from headwater.edge.broker.conn import LOGIN_BYTES
from headwater.edge.broker.rights.rules import Rules
from headwater.edge.monitor.moments import duration, nanoseconds, rfc3339, uptime
from headwater.edge.view.version import NATS_LEVEL
from headwater.federation.leaf_session import encoded
from headwater.hub.addresses import reachable
from headwater.hub.routes.dialer import Dialer
from headwater.hub.routes.route_conn import RouteConn
from headwater.hub.routes.route_interest import RouteInterest
from headwater.hub.routes.session import RouteConnect, RouteInfo, RouteSession, info_line
from headwater.security.auth_options import AuthOptions, PermissionOptions, SubjectRules
from headwater.security.authenticator import check_single
from headwater.security.errors import SecurityError
from headwater.security.identity import AuthRequest

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView

log = logging.getLogger("headwater.route")

PING_INTERVAL_MAX_S = 30.0
SWEEP_S = 0.5
PATIENCE_NS = 2_000_000_000
"""Time without progress after which producers no longer wait for a slow route."""

FRAMES_VERSION = 1
"""Of what nodes say to each other, in INFO; see `cluster.transport`."""

HANDSHAKE_S = 2.0
"""Time that a peer has to introduce itself when `authorization.timeout` says nothing."""


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
        self.conns: dict[int, RouteConn] = {}
        """Every connection that is open, whether or not it has introduced itself."""
        self.peers: dict[str, RouteConn] = {}
        """The route to each node, by its id."""
        self.dialers: list[Dialer] = []
        self._live: list[RouteConn] = []
        self._interest: dict[str, RouteInterest] = {}
        self._started: dict[int, float] = {}
        self._pings: dict[int, asyncio.TimerHandle] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._urls: list[str] = []
        self._ws_urls: list[str] = []
        self._ignored: frozenset[bytes] = frozenset()
        self._principal = route_principal(self.options.permissions)
        self._leaving = False
        self.peer_watchers: list[Callable[[RouteConn, bool], None]] = []
        """Called with a route that has come up, and when it has ended."""
        self.on_frame: Callable[[RouteConn, bytes, bytes], None] | None = None
        """Takes what other nodes say to this one; see `cluster.transport`."""
        node.facts.cluster = self.cluster

    def _judge(self) -> None:
        """Other options are in force, those of the log, too: end the routes whose credentials
        are right no more."""
        self.options = self.node.options.cluster
        for conn in list(self.conns.values()):
            conn.trace_protocol()
            session: RouteSession = conn.session
            if session.told is not None:
                self.judge(conn, session.told, functools.partial(self._judged, conn))

    def _judged(self, conn: RouteConn, outcome: Any) -> None:
        if isinstance(outcome, SecurityError):
            conn.fail("Authorization Violation", "Authentication Failure")

    # --- begin and end ---

    def begin(self, port: int) -> None:
        """The client listener is there: tell clients of it, and dial."""
        node = self.node
        self.port = port
        self._ignored = _jetstream_api(node)
        for account in list(node.accounts.values()):
            self._watch(account)
        node.account_hooks.append(self._watch)
        node.farewells.append(self._leave)
        node.reload_hooks.append(self._judge)
        self._urls = self._own_urls()
        self._ws_urls = self._own_ws_urls()
        self._tell_clients()
        for url in self.options.routes:
            self._dial(url, implicit=False)
        self._sweeper = node.loop.call_later(SWEEP_S, self._sweep)

    def _watch(self, account: Account) -> None:
        self._interest[account.name] = RouteInterest(account, self._live, self._principal)
        text = self._interest[account.name].lines()
        for conn in self._live:
            conn.queue(text)
            conn.account_made(account)

    async def stop(self) -> None:
        """Stop dialling and end every route."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for dialer in self.dialers:
            await dialer.stop()
        for conn in list(self.conns.values()):
            conn.close("Server Shutdown")
        for interest in self._interest.values():
            interest.stop()

    def _dial(self, url: str, *, implicit: bool) -> None:
        dialer = Dialer(self, url, implicit=implicit)
        self.dialers.append(dialer)
        dialer.start()

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
        conn.on_frame = self.on_frame
        conn.on_closed = self._on_closed
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if not session.solicited:
            conn.allowance = LOGIN_BYTES
        self.conns[conn.cid] = conn
        self._started[conn.cid] = time.time()
        timeout = self.options.authorization.timeout or HANDSHAKE_S
        node.loop.call_later(timeout, self._handshake_expired, conn)
        return conn

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
            log.info("%s - Router connection closed: %s", session.label(conn), reason)
        if self.peers.get(session.peer.server_id) is conn:
            del self.peers[session.peer.server_id]
            self._tell_clients()
            self._tell_watchers(conn, False)

    # --- what sessions ask for ---

    def own_info(self) -> RouteInfo:
        """What this node says of itself."""
        facts, options = self.node.facts, self.options
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
            ip=f"nats-route://{options.advertise}/" if options.advertise else "",
            cluster=self.cluster,
            cluster_dynamic=self.dynamic,
            domain=facts.domain,
            connect_urls=[] if options.no_advertise else self._urls,
            ws_connect_urls=[] if options.no_advertise else self._ws_urls,
            ldm=self._leaving,
            headwater=FRAMES_VERSION,
        )

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
            host=session.place[0],
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

    def register(self, conn: RouteConn) -> bool:
        """Begin to use a route; False when it is superfluous."""
        session: RouteSession = conn.session
        server_id = session.peer.server_id
        old = self.peers.get(server_id)
        if old is not None and self._dialed_by(old) < self._dialed_by(conn):
            return False
        self.peers[server_id] = conn
        conn.ready = True
        conn.prove()
        if old is not None:
            old.close("Duplicate Route")
        conn.queue(b"".join([interest.lines() for interest in self._interest.values()]))
        self._live.append(conn)
        log.info("%s - Route to %s is up", session.label(conn), session.peer.server_name)
        self._forward(conn)
        self._tell_clients()
        self._ping_later(conn)
        self._tell_watchers(conn, True)
        return True

    def _tell_watchers(self, conn: RouteConn, there: bool) -> None:
        for watcher in self.peer_watchers:
            watcher(conn, there)

    def _dialed_by(self, conn: RouteConn) -> str:
        """Id of the node that opened a route: both ends keep that of the lower one."""
        session: RouteSession = conn.session
        return self.server_id if session.solicited else session.peer.server_id

    def _forward(self, conn: RouteConn) -> None:
        """Tell the others of a new node, so that they connect to it."""
        session: RouteSession = conn.session
        if session.implicit:
            return
        info = session.peer
        if not info.ip:
            host = session.place[0]
            shown = f"[{host}]" if ":" in host else host
            info.ip = f"nats-route://{shown}:{info.port}/"
        for other in self._live:
            if other is not conn:
                other.queue(info_line(info))

    def unanswered(self) -> list[str]:
        """Configured routes that have not led to a node yet."""
        return [f"{d.host}:{d.port}" for d in self.dialers if not d.implicit and not d.answered]

    def heard_of(self, info: RouteInfo) -> None:
        """Connect to a node that another one has told of."""
        if info.server_id == self.server_id or self.has(info.server_id):
            return
        place = urlsplit(info.ip)
        if not place.hostname or not place.port:
            return
        for dialer in self.dialers:
            if dialer.busy and dialer.leads_to(place.hostname, place.port):
                return
        user = self.options.authorization
        login = f"{user.user}:{user.password}@" if info.auth_required and user.user else ""
        self.dialers = [dialer for dialer in self.dialers if dialer.busy]
        self._dial(f"nats-route://{login}{place.netloc.rpartition('@')[2]}", implicit=True)

    def peer_changed(self, conn: RouteConn, info: RouteInfo) -> None:
        """A peer tells something new of itself: mostly that it is about to leave."""
        session: RouteSession = conn.session
        session.peer.connect_urls = [] if info.ldm else info.connect_urls
        session.peer.ws_connect_urls = [] if info.ldm else info.ws_connect_urls
        self._tell_clients()

    # --- what clients are told ---

    def _own_urls(self) -> list[str]:
        options = self.node.options
        port = self.node.facts.port
        if options.client_advertise:
            return [_with_port(options.client_advertise, port)]
        return [_with_port(host, port) for host in reachable(options.host)]

    def _own_ws_urls(self) -> list[str]:
        settings = self.node.options.websocket
        found = [url for s in self.node.services for url in s.ports().get("websocket", [])]
        if not found:
            return []
        port = urlsplit(found[0]).port or settings.port
        if settings.advertise:
            return [_with_port(settings.advertise, port)]
        return [_with_port(host, port) for host in reachable(settings.host)]

    def _tell_clients(self) -> None:
        """Bring INFO's list of nodes up to date."""
        if self.options.no_advertise:
            return
        peers = [conn.session.peer for conn in self.peers.values()]
        urls = [] if self._leaving else list(self._urls)
        ws_urls = [] if self._leaving else list(self._ws_urls)
        for peer in peers:
            urls += [url for url in peer.connect_urls if url not in urls]
            ws_urls += [url for url in peer.ws_connect_urls if url not in ws_urls]
        facts = self.node.facts
        if (urls, ws_urls) != (facts.connect_urls, facts.ws_connect_urls):
            facts.connect_urls, facts.ws_connect_urls = urls, ws_urls
            self.node.sessions.announce()

    def _leave(self) -> None:
        """Lame duck mode: clients shall look for other nodes."""
        self._leaving = True
        text = info_line(self.own_info())
        for conn in self._live:
            conn.queue(text)
        self._tell_clients()

    # --- liveness ---

    def _ping_later(self, conn: RouteConn) -> None:
        node = self.node.options
        interval = min(self.options.ping_interval or node.ping_interval, PING_INTERVAL_MAX_S)
        self._pings[conn.cid] = self.node.loop.call_later(interval, self._ping, conn, interval)

    def _ping(self, conn: RouteConn, interval: float) -> None:
        if conn.closed:
            return
        limit = self.options.ping_max or self.node.options.ping_max
        if self.node.kernel.clock() - conn.received_ns < interval * 1e9:
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
        now = self.node.kernel.clock()
        for conn in [c for c in self.conns.values() if c.waiting]:
            idle = now - conn.progress_ns
            if idle > deadline_ns:
                conn.close("Slow Consumer (Write Deadline)")
            elif idle > PATIENCE_NS and not conn.overtaken:
                conn.overtake()
        self._sweeper = self.node.loop.call_later(SWEEP_S, self._sweep)

    # --- facts ---

    def status(self) -> list[dict[str, Any]]:
        """One record per route, in the fields of /routez."""
        return [self._describe(conn) for conn in self._live]

    def _describe(self, conn: RouteConn) -> dict[str, Any]:
        session: RouteSession = conn.session
        started = self._started[conn.cid]
        last_ns = max(nanoseconds(started), conn.received_ns)
        return {
            "rid": conn.cid,
            "remote_id": session.peer.server_id,
            "remote_name": session.peer.server_name,
            "did_solicit": session.solicited,
            "is_configured": session.solicited and not session.implicit,
            "ip": session.place[0],
            "port": session.place[1],
            "start": rfc3339(nanoseconds(started)),
            "last_activity": rfc3339(last_ns),
            "rtt": duration(conn.rtt_ns),
            "uptime": uptime(time.time() - started),
            "idle": uptime((time.time_ns() - last_ns) / 1e9),
            "pending_size": conn.pending,
            "in_msgs": conn.in_msgs,
            "out_msgs": conn.out_msgs,
            "in_bytes": conn.in_bytes,
            "out_bytes": conn.out_bytes,
            "subscriptions": len(conn.subs),
            "subscriptions_list": [
                subject.decode("utf-8", "replace") for _, subject, _ in conn.subs
            ],
            "compression": "off",
        }


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


def _with_port(host: str, port: int) -> str:
    """`host:port`; a host that has a port already keeps it."""
    if host.rpartition(":")[2].isdigit() and host.count(":") == 1:
        return host
    return f"[{host.strip('[]')}]:{port}" if ":" in host else f"{host}:{port}"
