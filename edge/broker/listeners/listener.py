"""Listening sockets: accept, and hand each new socket to a session maker."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

from headwater.edge.broker.listeners.binding import ANY, bind
from headwater.edge.facts.peer_address import plain_address

log = logging.getLogger("headwater.broker")

ACCEPTS_PER_TURN = 64
REST_MIN_S = 0.01
REST_MAX_S = 1.0
"""Pause after a failed accept (no descriptor is left), doubled from the one to the other."""


class Listener:
    """One listening TCP socket. `on_socket(sock, address)` is called for each connection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        on_socket: Callable[[socket.socket, tuple[Any, ...]], None],
        bound: socket.socket | None = None,
    ) -> None:
        """Bind to `host`:`port`; port -1 takes any free one. Raises ListenError. With `bound`, take
        over that socket, which listens there already."""
        self._loop = loop
        self._on_socket = on_socket
        self.sock = bound or bind(host, 0 if port == -1 else port)
        self._resting: asyncio.TimerHandle | None = None
        self._rest_s = REST_MIN_S
        self.host: str
        self.port: int
        self.host, self.port = self.sock.getsockname()[:2]

    def start(self) -> None:
        """Begin to accept."""
        self._resting = None
        if self.sock.fileno() >= 0:
            self._loop.add_reader(self.sock.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = self.sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(error)
                return
            self._rest_s = REST_MIN_S
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._on_socket(sock, plain_address(address))

    def _rest(self, error: OSError) -> None:
        """Accept nothing for a while: whatever is short will not be there at once."""
        self._loop.remove_reader(self.sock.fileno())
        self._resting = self._loop.call_later(self._rest_s, self.start)
        log.error(
            "Cannot accept connections on %s:%d: %s; trying again in %d ms",
            self.host,
            self.port,
            error,
            round(self._rest_s * 1000),
        )
        self._rest_s = min(REST_MAX_S, self._rest_s * 2)

    def close(self) -> None:
        """Stop listening."""
        if self._resting is not None:
            self._resting.cancel()
        if self.sock.fileno() >= 0:
            self._loop.remove_reader(self.sock.fileno())
            self.sock.close()


def shown_hosts(host: str) -> list[str]:
    """Hosts under which a listener on `host` is reached: loopback and then all that the machine
    has for the any address."""
    if host not in ANY:
        return [host]
    import ifaddr

    entries = [entry.ip for adapter in ifaddr.get_adapters() for entry in adapter.ips]
    names = [entry if isinstance(entry, str) else f"[{entry[0]}]" for entry in entries]
    return ["127.0.0.1", *(name for name in names if name != "127.0.0.1")]
