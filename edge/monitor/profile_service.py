"""The profiling port (`prof_port`), where `go tool pprof` and people find profiles of the process.

Whoever reaches the port may ask, as with nats-server: it is for networks that are trusted.
"""

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from headwater.edge.broker.listeners.listener import Listener, shown_hosts
from headwater.edge.conf.options import Options
from headwater.edge.monitor.visitors import Answer, Visitors

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView

log = logging.getLogger("headwater.monitor")


class ProfileService:
    """Serves /debug/pprof/ over HTTP, on the host of the clients."""

    name = "profiles"

    def __init__(self, options: Options) -> None:
        self.options = options
        self._door: Listener | None = None
        self._visitors: Visitors

    def start(self, node: "NodeView") -> None:
        """Bind, and serve. Raises ListenError."""
        from headwater.edge.monitor.profile_pages import answer

        def answered(path: str, parameters: dict[str, str]) -> Answer | Awaitable[Answer]:
            return answer(node, path, parameters)

        self._visitors = Visitors(node.loop, answered)
        self._door = Listener(
            node.loop,
            self.options.host,
            self.options.profile_port,
            lambda sock, address: self._visitors.serve(sock, None),
        )
        self._door.start()
        log.info("profiling port: %d", self._door.port)

    async def stop(self) -> None:
        """Stop serving."""
        if self._door is not None:
            self._door.close()
            self._visitors.stop()

    def ports(self) -> dict[str, list[str]]:
        """URLs by which it is found."""
        if self._door is None:
            return {}
        port = self._door.port
        return {"profile": [f"http://{name}:{port}" for name in shown_hosts(self.options.host)]}

    def status(self) -> dict[str, Any]:
        """Nothing."""
        return {}
