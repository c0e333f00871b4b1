"""The HTTP server of the monitoring endpoints.

Its sockets are bound before the node recovers, and `early` answers until that is done. The HTTP
library, which takes a while to import, is loaded in a thread afterwards; requests that come
meanwhile wait in the backlog.
"""

import asyncio
import importlib
import logging
from typing import TYPE_CHECKING, Any

from headwater.edge.broker.listener import Listener, shown_hosts
from headwater.edge.conf.options import Options
from headwater.edge.monitor.query import Query
from headwater.edge.monitor.routes import JSON, render

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView

log = logging.getLogger("headwater.monitor")

REQUEST_BYTES_MAX = 64 * 1024
"""Longest request body that is read (and ignored)."""

STOP_S = 1.0
"""Time that requests under way have when the node stops."""


class MonitorService:
    """Serves /varz and its family over HTTP, HTTPS or both."""

    name = "monitoring"

    def __init__(self, options: Options) -> None:
        self.options = options
        self._base = "/" + options.http_base_path.strip("/") if options.http_base_path else ""
        self._places: list[tuple[str, str, int]] = []
        self._doors: list[tuple[Listener, Any]] = []
        self._runner: Any = None
        self._visitors: Any = None
        self._serving: asyncio.Task[None] | None = None
        self._early: Any = None

    def before_recovery(self, node: "NodeView") -> None:
        """Bind, and answer from a thread. Raises ListenError and TLSConfigError."""
        from headwater.edge.monitor.early import EarlyAnswers

        self._bind(node)
        doors = [(listener.sock, context) for listener, context in self._doors]
        self._early = EarlyAnswers(doors, self._base, node.progress, node.server_name)

    def start(self, node: "NodeView") -> None:
        """Serve, and bind unless that was done. Raises ListenError and TLSConfigError."""
        self._stop_early()
        if not self._doors:
            self._bind(node)
        self._serving = node.loop.create_task(self._serve())

    def _stop_early(self) -> None:
        if self._early is not None:
            self._early.stop()
            self._early = None

    def _bind(self, node: "NodeView") -> None:
        from headwater.edge.broker.tls_context import tls_context

        self._node = node
        options = self.options
        if options.http_port:
            self._open("http", options.http_port, None)
        if options.https_port and options.tls is not None:
            self._open("https", options.https_port, tls_context(options.tls))

    def _open(self, scheme: str, port: int, context: Any) -> None:
        host = self.options.http_host or self.options.host
        listener = Listener(
            self._node.loop, host, port, lambda sock, address: self._visitors.take(sock, context)
        )
        self._doors.append((listener, context))
        log.info("Starting %s monitor on %s:%d", scheme, host, listener.port)
        self._places.append((scheme, host, listener.port))

    async def _serve(self) -> None:
        visitors = await asyncio.to_thread(
            importlib.import_module, "headwater.edge.monitor.visitors"
        )
        from aiohttp import web

        app = web.Application(client_max_size=REQUEST_BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_S)
        await self._runner.setup()
        self._visitors = visitors.Visitors(self._runner, self._node.loop)
        for listener, _ in self._doors:
            listener.start()

    async def _answer(self, request: Any) -> Any:
        from aiohttp import web

        request.protocol.asked()
        path = request.path
        if self._base:
            if path != self._base and not path.startswith(self._base + "/"):
                path = "/nowhere"
            else:
                path = path[len(self._base) :]
        path = "/" + path.strip("/")
        try:
            reply = render(self._node, path, Query(request.query))
        except Exception:
            log.exception("a monitoring request for %s could not be answered", path)
            return web.Response(status=500, text="this page could not be made; see the log\n")
        response = web.Response(body=reply.body, status=reply.status)
        callback = request.query.get("callback", "")
        if callback.isidentifier() and reply.content_type == JSON:
            response.body = b"%s(%s)" % (callback.encode(), reply.body)
            response.headers["Content-Type"] = "application/javascript"
            return response
        response.headers["Content-Type"] = reply.content_type
        if reply.content_type == JSON:
            response.headers["Access-Control-Allow-Origin"] = "*"
        return response

    async def stop(self) -> None:
        """Stop serving."""
        self._stop_early()
        if self._serving is not None:
            await asyncio.wait([self._serving], timeout=STOP_S)
        for listener, _ in self._doors:
            listener.close()
        if self._visitors is not None:
            self._visitors.stop()
        if self._runner is not None:
            await self._runner.cleanup()

    def ports(self) -> dict[str, list[str]]:
        """URLs of the endpoints."""
        return {
            "monitoring": [
                f"{scheme}://{name}:{port}{self._base}"
                for scheme, host, port in self._places
                for name in shown_hosts(host)
            ]
        }

    def status(self) -> dict[str, Any]:
        """Nothing beyond the requests that /varz counts."""
        return {}
