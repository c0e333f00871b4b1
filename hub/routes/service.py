"""What the cluster plugs into a node: the route listener and the routes."""

import logging
import socket
from typing import TYPE_CHECKING, Any

from headwater.edge.broker.listeners.listener import Listener, shown_hosts
from headwater.edge.conf.options import Options
from headwater.hub.routes.routes import Routes
from headwater.hub.routes.session import RouteSession

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView

log = logging.getLogger("headwater.route")

DEFAULT_HOST = "0.0.0.0"


class RouteService:
    """Routes between the nodes of one cluster."""

    name = "routes"

    def __init__(self, options: Options) -> None:
        self.options = options.cluster
        self.routes: Routes | None = None
        self._listener: Listener | None = None

    def start(self, node: "NodeView") -> None:
        """Bind now; accept and dial as soon as clients are served. Raises ListenError."""
        host = self.options.host or DEFAULT_HOST
        self._listener = Listener(node.loop, host, self.options.port, self._on_socket)
        self.routes = Routes(node)
        log.info("Cluster name is %s", self.routes.cluster)
        if self.routes.dynamic:
            log.warning("Cluster name was dynamically generated, consider setting one")
        log.info("Listening for route connections on %s:%d", host, self._listener.port)
        node.loop.call_soon(self._begin)

    def _begin(self) -> None:
        if self._listener is not None and self.routes is not None:
            self._listener.start()
            self.routes.begin(self._listener.port)

    def _on_socket(self, sock: socket.socket, address: tuple[Any, ...]) -> None:
        if self.routes is None:
            sock.close()
            return
        session = RouteSession(self.routes, (address[0], address[1]))
        conn = self.routes.open(session, sock)
        context = self.routes.node.tls.cluster
        if context is None:
            conn.attach(sock)
            session.greet(conn)
            self.routes.node.kernel.turn()
            return
        from headwater.edge.broker.listeners.tls_filter import TLSFilter

        routes = self.routes

        def ready(secured: TLSFilter) -> None:
            wanted = routes.peer_demands()
            routes.node.judge_peer(conn, secured, wanted, lambda: session.greet(conn))

        conn.attach(sock, TLSFilter(context, on_ready=ready))

    async def stop(self) -> None:
        """Stop listening, and end every route."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        if self.routes is not None:
            await self.routes.stop()

    def ports(self) -> dict[str, list[str]]:
        """The route listener's URL."""
        if self._listener is None:
            return {}
        hosts = shown_hosts(self.options.host)
        return {"cluster": [f"nats://{host}:{self._listener.port}" for host in hosts]}

    def status(self) -> dict[str, Any]:
        """`routes` as of /routez."""
        return {"routes": self.shown_links("routes", lists=True)}

    def shown_links(
        self, kind: str, account: str = "", lists: bool = False
    ) -> list[dict[str, Any]]:
        """As of `LinkService`: routes, which are no account's."""
        if kind != "routes" or self.routes is None:
            return []
        return self.routes.status(lists)
