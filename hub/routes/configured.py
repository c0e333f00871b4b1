"""The addresses of `cluster.routes`: each is dialled as long as the configuration names it."""

import logging

from headwater.hub.routes.dialer import Dialer, DialerRegistry

log = logging.getLogger("headwater.route")


class ConfiguredRoutes:
    """The dialers of one node's configuration, by URL."""

    def __init__(self, routes: DialerRegistry) -> None:
        self._routes = routes
        self._dialers: dict[str, Dialer] = {}

    def follow(self, urls: list[str]) -> None:
        """Dial the addresses that are new. Of one that is named no more, end the dialler and what
        it has dialled; the node may still dial this one, or be heard of from others."""
        for url in self._dialers.keys() - set(urls):
            self._remove(self._dialers.pop(url))
        for url in urls:
            if url not in self._dialers:
                self._dialers[url] = self._routes.dial(url, implicit=False)

    def _remove(self, dialer: Dialer) -> None:
        dialer.end()
        if dialer in self._routes.dialers:
            self._routes.dialers.remove(dialer)
        for conn in list(self._routes.conns.values()):
            if conn.session.dialer is dialer:
                conn.close("Route Removed")
        log.info("Removed route %s:%d", dialer.host, dialer.port)
