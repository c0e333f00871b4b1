"""The listening side of leaf links: accepts sockets, starts TLS, and times logins."""

import logging
import socket
from typing import TYPE_CHECKING, Any

from headwater.edge.broker.conn import LOGIN_BYTES
from headwater.edge.broker.listeners.listener import Listener, shown_hosts
from headwater.edge.ports.draws import draw_nonce
from headwater.federation.leaf.leaf_links import LeafLinks
from headwater.federation.leaf.leaf_session import HubSession

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView
    from headwater.edge.websocket.websocket_listener import Handshake
    from headwater.edge.websocket.websocket_request import Upgrade
    from headwater.federation.leaf.leaf_conn import LeafConn

log = logging.getLogger("headwater.leaf")

LOGIN_TIMEOUT_S = 15.0
"""Time for the handshake when none is configured: a satellite link needs several round trips."""

DEFAULT_LEAF_HOST = "0.0.0.0"


class LeafListener:
    """Accepts leaf links for a node. Binding may raise ListenError."""

    def __init__(self, links: LeafLinks) -> None:
        self.links = links
        self._listener: Listener | None = None

    @property
    def port(self) -> int:
        """Port listened on; 0 before `start`."""
        return self._listener.port if self._listener is not None else 0

    def start(self, node: "NodeView") -> None:
        """Listen. Raises ListenError or TLSConfigError."""
        options = node.options.leaf
        host = options.host or DEFAULT_LEAF_HOST
        self._listener = Listener(node.loop, host, options.port, self._on_socket)
        if options.advertise:
            bare = options.advertise.rpartition(":")[2].isdigit()
            self.links.advertise = (
                options.advertise if bare else f"{options.advertise}:{self.port}"
            )
        self.links.isolate = options.isolate_interest
        self._listener.start()
        log.info("Listening for leafnode connections on %s:%d", host, self.port)

    def urls(self) -> list[str]:
        """Where spokes reach this node."""
        options = self.links.node.options.leaf
        scheme = "tls" if options.tls else "nats"
        hosts = shown_hosts(options.host or DEFAULT_LEAF_HOST)
        return [f"{scheme}://{host}:{self.port}" for host in hosts]

    def accept_upgrade(self, handshake: "Handshake", upgrade: "Upgrade") -> None:
        """Make a link of a WebSocket that asks to be one."""
        options = self.links.node.options
        frames = handshake.accept(upgrade, options.websocket.headers)
        conn, session = self._open(handshake.sock, handshake.address)
        detail = self.links.detail(conn)
        detail["websocket"] = True
        if handshake.tls is not None:
            detail["certificate"] = handshake.tls.tls.getpeercert()
        conn.attach(handshake.sock, frames)
        session.greet(conn)
        self.links.node.kernel.turn()

    def _open(
        self, sock: socket.socket, address: tuple[Any, ...]
    ) -> "tuple[LeafConn, HubSession]":
        """The session of a new socket, which has a bounded time for its login."""
        options = self.links.node.options.leaf
        session = HubSession(
            self.links,
            f"{address[0]}:{address[1]}",
            draw_nonce(self.links.node.kernel.chance),
            options.min_version,
        )
        conn = self.links.open(session, sock, options.rate)
        conn.allowance = LOGIN_BYTES
        self._expect_login(conn, options.authorization.timeout or LOGIN_TIMEOUT_S)
        return conn, session

    def _expect_login(self, conn: "LeafConn", timeout: float) -> None:
        """Look at a login after `timeout` seconds, unless the link has ended by then."""
        timer = self.links.node.loop.call_later(timeout, self._login_expired, conn)
        self.links.when_closed(conn, lambda _: timer.cancel())

    def _on_socket(self, sock: socket.socket, address: tuple[Any, ...]) -> None:
        tls = self.links.node.options.leaf.tls
        conn, session = self._open(sock, address)
        if tls is not None and tls.handshake_first:
            conn.attach(sock, self._filter(conn, session, greet=True))
            return
        conn.attach(sock)
        session.greet(conn)
        self.links.node.kernel.turn()
        if tls is not None and not conn.closed:
            conn.use_filter(self._filter(conn, session, greet=False))

    def _filter(self, conn: "LeafConn", session: HubSession, *, greet: bool) -> Any:
        from headwater.edge.broker.listeners.tls_filter import TLSFilter

        node = self.links.node

        def ready(secured: TLSFilter) -> None:
            tls = node.options.leaf.tls
            wanted = tls.ocsp_peer if tls is not None else None
            node.judge_peer(conn, secured, wanted, lambda: admitted(secured), "Leafnode")

        def admitted(secured: TLSFilter) -> None:
            self.links.detail(conn)["certificate"] = secured.tls.getpeercert()
            if greet:
                session.greet(conn)

        return TLSFilter(self.links.node.tls.leafnodes, on_ready=ready)

    def _login_expired(self, conn: "LeafConn") -> None:
        if conn.deciding:
            self._expect_login(conn, LOGIN_TIMEOUT_S)
        elif not conn.ready and not conn.closed:
            log.error("%s - Authentication Timeout", conn.session.label(conn))
            conn.fail("Authentication Timeout", "Authentication Timeout")

    def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.close()
