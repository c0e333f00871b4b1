"""Keeps the routes to one address up by dialling it again whenever one is missing."""

import asyncio
import logging
import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from headwater.hub.routes.route_conn import RouteConn
from headwater.hub.routes.session import Registry, RouteSession
from headwater.security.errors import SecurityError

if TYPE_CHECKING:
    from headwater.edge.conf.options import ClusterOptions, OCSPPeerOptions
    from headwater.edge.view.node_view import NodeView

log = logging.getLogger("headwater.route")

RETRY_S = 1.0
RETRY_MAX_S = 30.0
IMPLICIT_TRIES = 3
"""Attempts for an address that another node has told of, unless `connect_retries` says more."""

DIAL_TIMEOUT_S = 2.0
DEFAULT_PORT = 6222


class DialerRegistry(Registry, Protocol):
    """Where a dialer turns to: the sessions' registry, and what opens a connection."""

    node: "NodeView"
    options: "ClusterOptions"
    tls_name: str
    """Name that a certificate may be for when the peer is known by its address alone."""
    conns: dict[int, RouteConn]
    """Every connection that is open."""
    dialers: "list[Dialer]"
    """What dials now."""

    def dial(self, url: str, *, implicit: bool, gossip: int = 0) -> "Dialer":
        """Keep up the routes to an address from now on."""

    def peer_demands(self) -> "OCSPPeerOptions | None":
        """What is asked about the certificate of a peer."""

    def has(self, server_id: str) -> bool:
        """Whether there is a route to that node."""

    def missing(self, server_id: str) -> list[str]:
        """What is to be dialled for to have all routes to a node: "" stands for a shared one, a
        name for the route of an account."""

    def open(self, session: RouteSession, sock: socket.socket) -> RouteConn:
        """Make the connection of a new socket; the caller attaches it."""


class Dialer:
    """One address. Ends when it leads to this node itself; with `implicit`, which is for nodes that
    others have told of, also when nobody has answered for some times."""

    def __init__(
        self, routes: DialerRegistry, url: str, *, implicit: bool, gossip: int = 0
    ) -> None:
        parts = urlsplit(url if "://" in url else f"nats-route://{url}")
        self.routes = routes
        self.implicit = implicit
        self.gossip = gossip
        self.host = parts.hostname or ""
        self.port = parts.port or DEFAULT_PORT
        self.credentials = (unquote(parts.username or ""), unquote(parts.password or ""))
        self._task: asyncio.Task[None] | None = None
        self._peer = ""
        self._failures = 0
        self._session: RouteSession | None = None

    @property
    def busy(self) -> bool:
        """Whether it still tries, or will try again."""
        return self._task is not None and not self._task.done()

    @property
    def answered(self) -> bool:
        """Whether a node was found at the address, be it this one."""
        return bool(self._peer) or (self._session is not None and self._session.registered)

    def leads_to(self, host: str, port: int) -> bool:
        """Whether this is the dialer of that address."""
        return (self.host, self.port) == (host.lower(), port)

    def start(self) -> None:
        """Begin to dial in the background."""
        self._task = self.routes.node.loop.create_task(self._run())

    def end(self) -> None:
        """Dial no more; what has been dialled goes on."""
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """Stop dialling, and wait for that."""
        self.end()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while self._peer != self.routes.server_id:
            proven = False
            for account in self.routes.missing(self._peer):
                proven = await self._attempt(account) or proven
            if self.implicit and self._done():
                return
            if not proven or not self.routes.missing(self._peer):
                await asyncio.sleep(self._delay())

    def _done(self) -> bool:
        tries = max(IMPLICIT_TRIES, self.routes.options.connect_retries)
        return self._failures >= tries and not self.routes.has(self._peer)

    def _delay(self) -> float:
        grown = RETRY_S
        if self.routes.options.connect_backoff:
            grown = min(RETRY_MAX_S, RETRY_S * 2.0 ** min(self._failures, 16))
        part: int = self.routes.node.kernel.chance.below(1 << 20)
        return grown * (0.5 + part / (1 << 21))

    async def _attempt(self, account: str) -> bool:
        """Dial once, for a shared route or for that of an account; whether it came to be used, and
        the peer has accepted it."""
        try:
            sock = await self._connect()
        except (OSError, TimeoutError) as error:
            self._failures += 1
            if self._failures == 1:
                log.error("Error trying to connect to route %s:%d: %s", self.host, self.port, error)
            return False
        try:
            peer = sock.getpeername()
            session = RouteSession(
                self.routes,
                peer[:2],
                solicited=True,
                credentials=self.credentials,
                account=account,
            )
            session.dialer = self
            session.implicit = self.implicit
            session.gossip = self.gossip
            self._session = session
            proven = await self._proven(session, sock)
        except (OSError, SecurityError) as error:
            log.error("Error on route %s:%d: %s", self.host, self.port, error)
            self._failures += 1
            sock.close()
            return False
        self._peer = session.peer.server_id or self._peer
        self._failures = 0 if proven else self._failures + 1
        return proven

    async def _connect(self) -> socket.socket:
        """A socket connected to the first address of the name that answers. Raises OSError."""
        loop = self.routes.node.loop
        async with asyncio.timeout(DIAL_TIMEOUT_S):
            addresses = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            failure = OSError("the name has no address")
            for family, kind, protocol, _, address in addresses:
                sock = socket.socket(family, kind, protocol)
                sock.setblocking(False)
                try:
                    await loop.sock_connect(sock, address)
                    return sock
                except OSError as error:
                    sock.close()
                    failure = error
                except BaseException:
                    sock.close()
                    raise
        raise failure

    async def _proven(self, session: RouteSession, sock: socket.socket) -> bool:
        """Whether the peer has accepted the route; it is refused when it ends before that."""
        node = self.routes.node
        verdict: asyncio.Future[bool] = node.loop.create_future()
        conn = self.routes.open(session, sock)
        closed = conn.on_closed

        def resolve(accepted: bool) -> None:
            if not verdict.done():
                verdict.set_result(accepted)

        def on_closed(ending: Any, reason: str) -> None:
            closed(ending, reason)
            resolve(False)

        conn.on_closed = on_closed
        session.on_proven = lambda: resolve(True)
        conn.attach(sock, self._filter(conn))
        node.kernel.kick()
        if conn.filter is not None:
            conn.queue(b"")
        return await verdict

    def _filter(self, conn: RouteConn) -> Any:
        tls = self.routes.options.tls
        if tls is None:
            return None
        from headwater.federation.dialling.client_tls import dialled_tls

        # A node that others have told of has an address, where its certificate has the name of
        # the cluster's nodes.
        gossiped = self.implicit and is_address(self.host)
        node, wanted = self.routes.node, self.routes.peer_demands()
        return dialled_tls(
            tls,
            (gossiped and self.routes.tls_name) or self.host,
            ready=lambda session: node.judge_peer(conn, session, wanted, lambda: None),
        )


def is_address(host: str) -> bool:
    """Whether a host is given by its IP address."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
