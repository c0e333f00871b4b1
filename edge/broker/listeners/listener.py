"""Listening sockets: accept, and hand each new socket to a session maker."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Any

from headwater.edge.facts.peer_address import plain_address

log = logging.getLogger("headwater.broker")

BACKLOG = 1024
ACCEPTS_PER_TURN = 64
REST_MIN_S = 0.01
REST_MAX_S = 1.0
"""Pause after a failed accept (no descriptor is left), doubled from the one to the other."""
ANY = ("", "0.0.0.0", "::")
NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT, errno.ENOPROTOOPT)


class ListenError(Exception):
    """An address that cannot be listened on; the text says which and why."""


class Listener:
    """One listening TCP socket. `on_socket(sock, address)` is called for each connection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        on_socket: Callable[[socket.socket, tuple[Any, ...]], None],
    ) -> None:
        """Bind to `host`:`port`; port -1 takes any free one. Raises ListenError."""
        self._loop = loop
        self._on_socket = on_socket
        self.sock = _bind(host, 0 if port == -1 else port)
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


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        if host in ANY:
            return _dual_stack(port)
        return _listening(family, _numeric(host), port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ListenError(f"listen tcp {host}:{port}: {reason.lower()}") from error


def _dual_stack(port: int) -> socket.socket:
    """Listen on every address of both families; of IPv4 alone where there is no IPv6."""
    try:
        return _listening(socket.AF_INET6, "::", port, both=True)
    except OSError as error:
        if error.errno not in NO_IPV6:
            raise
    return _listening(socket.AF_INET, "0.0.0.0", port)


def _listening(
    family: socket.AddressFamily, host: str, port: int, *, both: bool = False
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if both:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except (OSError, OverflowError):
        sock.close()
        raise
    return sock


def _numeric(host: str) -> str:
    return "127.0.0.1" if host == "localhost" else host
