"""The addresses of a cluster's nodes, as clients hear of them in INFO."""

from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headwater.hub.addresses import reachable
from headwater.hub.routes.session import RouteInfo

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView


class Advertised:
    """`connect_urls` and `ws_connect_urls` of one node, and of those that it is routed to."""

    def __init__(self, node: "NodeView") -> None:
        self.node = node
        self.urls: list[str] = []
        """Of this node, for clients over TCP."""
        self.ws_urls: list[str] = []
        """Of this node, for clients over WebSocket."""
        self._alone = True
        """Whether it has had no peer yet; clients then have nowhere else to go."""

    def find(self) -> None:
        """The listeners are there: find out where this node can be reached."""
        self.urls = self._own_urls()
        self.ws_urls = self._own_ws_urls()

    def _own_urls(self) -> list[str]:
        options = self.node.options
        port = self.node.facts.port
        if options.client_advertise:
            return [with_port(options.client_advertise, port)]
        return [with_port(host, port) for host in reachable(options.host)]

    def _own_ws_urls(self) -> list[str]:
        settings = self.node.options.websocket
        found = [url for s in self.node.services for url in s.ports().get("websocket", [])]
        if not found:
            return []
        port = urlsplit(found[0]).port or settings.port
        if settings.advertise:
            return [with_port(settings.advertise, port)]
        return [with_port(host, port) for host in reachable(settings.host)]

    def refresh(self, peers: Iterable[RouteInfo], *, leaving: bool) -> None:
        """Bring INFO's lists up to date; a node that is about to leave names only the others."""
        if self.node.options.cluster.no_advertise:
            return
        peers = list(peers)
        self._alone = self._alone and not peers
        silent = leaving or self._alone
        urls = [] if silent else list(self.urls)
        ws_urls = [] if silent else list(self.ws_urls)
        for peer in peers:
            urls += [url for url in peer.connect_urls if url not in urls]
            ws_urls += [url for url in peer.ws_connect_urls if url not in ws_urls]
        facts = self.node.facts
        if (urls, ws_urls) != (facts.connect_urls, facts.ws_connect_urls):
            facts.connect_urls, facts.ws_connect_urls = urls, ws_urls
            self.node.sessions.announce()


def with_port(host: str, port: int) -> str:
    """`host:port`; a host that has a port already keeps it."""
    if host.rpartition(":")[2].isdigit() and host.count(":") == 1:
        return host
    return f"[{host.strip('[]')}]:{port}" if ":" in host else f"{host}:{port}"
