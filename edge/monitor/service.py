"""The HTTP server of the monitoring endpoints.

Its sockets are bound before the node recovers, and `early` answers until that is done; requests
that come when it ends wait in the backlog for the moment until `visitors` takes them.
"""

import logging
from typing import TYPE_CHECKING, Any

from headwater.edge.broker.listeners.listener import Listener, shown_hosts
from headwater.edge.conf.options import Options
from headwater.edge.monitor.pages.edgez import facts_of
from headwater.edge.monitor.query import Query
from headwater.edge.monitor.routes import JSON, TEXT, Reply, render
from headwater.edge.monitor.steps import PageMaker
from headwater.edge.monitor.visitors import Answer, Visitors

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView

log = logging.getLogger("headwater.monitor")

RECORD_S = 5.0
"""How often an edge looks how far mirrors elsewhere are."""


class MonitorService:
    """Serves /varz and its family over HTTP, HTTPS or both."""

    name = "monitoring"

    def __init__(self, options: Options) -> None:
        self.options = options
        self._base = "/" + options.http_base_path.strip("/") if options.http_base_path else ""
        self._addresses: list[tuple[str, str, int]] = []
        self._doors: list[tuple[Listener, Any]] = []
        self._visitors: Any = None
        self._maker: PageMaker
        self._early: Any = None
        self._recording: Any = None

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
        self._maker = PageMaker(node.kernel.monotonic_ns)
        self._visitors = Visitors(node.loop, self._answer)
        for listener, _ in self._doors:
            listener.start()
        if self.options.leaf.remotes:
            self._record_sent()

    def _record_sent(self) -> None:
        """What mirrors elsewhere were given is remembered: it cannot be asked once they are cut."""
        facts_of(self._node).record(self._node)
        self._recording = self._node.loop.call_later(RECORD_S, self._record_sent)

    def _stop_early(self) -> None:
        if self._early is not None:
            self._early.stop()
            self._early = None

    def _bind(self, node: "NodeView") -> None:
        self._node = node
        options = self.options
        if options.http_port:
            self._open("http", options.http_port)
        if options.https_port and options.tls is not None:
            self._open("https", options.https_port)

    def _open(self, scheme: str, port: int) -> None:
        host = self.options.http_host or self.options.host

        def context() -> Any:
            return self._node.tls.clients if scheme == "https" else None

        listener = Listener(
            self._node.loop, host, port, lambda sock, address: self._visitors.serve(sock, context())
        )
        self._doors.append((listener, context()))
        log.info("Starting %s monitor on %s:%d", scheme, host, listener.port)
        self._addresses.append((scheme, host, listener.port))

    async def _answer(self, path: str, parameters: dict[str, str]) -> Answer:
        if self._base:
            if path != self._base and not path.startswith(self._base + "/"):
                path = "/nowhere"
            else:
                path = path[len(self._base) :]
        path = "/" + path.lstrip("/")
        try:
            reply = await render(self._node, path, Query(parameters), self._maker)
        except Exception:
            log.exception(
                "a monitoring request for %s failed; it is answered with 500; report this fault",
                path,
            )
            reply = Reply(500, b"this page could not be made; see the log\n", TEXT)
        callback = parameters.get("callback", "")
        if callback.isidentifier() and reply.content_type == JSON:
            body = b"%s(%s)" % (callback.encode(), reply.body)
            return Answer(reply.status, body, (("Content-Type", "application/javascript"),))
        headers = [("Content-Type", reply.content_type)]
        if reply.content_type == JSON:
            headers.append(("Access-Control-Allow-Origin", "*"))
        return Answer(reply.status, reply.body, tuple(headers))

    async def stop(self) -> None:
        """Stop serving."""
        self._stop_early()
        if self._recording is not None:
            self._recording.cancel()
        for listener, _ in self._doors:
            listener.close()
        if self._visitors is not None:
            self._visitors.stop()

    def ports(self) -> dict[str, list[str]]:
        """URLs of the endpoints."""
        return {
            "monitoring": [
                f"{scheme}://{name}:{port}{self._base}"
                for scheme, host, port in self._addresses
                for name in shown_hosts(host)
            ]
        }

    def status(self) -> dict[str, Any]:
        """Nothing beyond the requests that /varz counts."""
        return {}
