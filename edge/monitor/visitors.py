"""HTTP connections to the monitoring port, over aiohttp: bounded in number and in patience.

Imports aiohttp, which takes a while: import it late.
"""

import asyncio
import logging
import socket
import ssl
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

log = logging.getLogger("headwater.monitor")

VISITORS_MAX = 256
"""Connections at a time; a further one is closed at once."""

REQUEST_S = 5.0
"""From the begin of a connection to its first complete request, TLS included."""

KEEP_ALIVE_S = 15.0
"""From an answer to the next complete request."""

LINGER_S = 1.0
"""How long a body that nobody reads may still come."""


class Visitor(RequestHandler):
    """One connection; it ends by itself when it asks for nothing."""

    __slots__ = ("_patience",)

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]
            keepalive_timeout=KEEP_ALIVE_S,
            lingering_time=LINGER_S,
        )
        self._patience = loop.call_later(REQUEST_S, self.force_close)

    def asked(self) -> None:
        """A complete request came."""
        self._patience.cancel()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone."""
        self._patience.cancel()
        super().connection_lost(exc)

    def log_exception(self, *args: Any, **details: Any) -> None:
        """What a visitor sent is no HTTP: worth a line, and no traceback."""
        reason = type(details.get("exc_info")).__name__
        place = self.transport.get_extra_info("peername") if self.transport else None
        host, port = (place or ("unknown", 0))[:2]
        log.warning("%s:%s - malformed request to the monitoring port: %s", host, port, reason)


class Visitors:
    """Takes sockets in, and serves them through an application's runner."""

    def __init__(self, runner: web.AppRunner, loop: asyncio.AbstractEventLoop) -> None:
        self._runner = runner
        self._loop = loop
        self._coming: set[asyncio.Task[None]] = set()

    def take(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        """Serve a socket, over TLS when there is a context."""
        server = self._runner.server
        if server is None or len(server.connections) + len(self._coming) >= VISITORS_MAX:
            sock.close()
            return
        task = self._loop.create_task(self._serve(server, sock, context))
        self._coming.add(task)
        task.add_done_callback(self._coming.discard)

    async def _serve(
        self, server: web.Server, sock: socket.socket, context: ssl.SSLContext | None
    ) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: Visitor(server, self._loop),
                sock,
                ssl=context,
                ssl_handshake_timeout=None if context is None else REQUEST_S,
            )
        except (OSError, TimeoutError) as error:
            log.debug("a connection to the monitoring port failed: %s", error)
            sock.close()

    def stop(self) -> None:
        """End what is not connected yet."""
        for task in list(self._coming):
            task.cancel()
