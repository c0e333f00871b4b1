"""The PROXY protocol, versions 1 and 2: who a client behind a TCP proxy really is.

INFO goes out first, as from nats-server; a client without a header speaks for itself.
Whoever reaches such a listener can claim any address: it is for ports that only the proxy reaches.
"""

import ipaddress
import logging
import socket
import struct
from collections.abc import Callable
from typing import Any

log = logging.getLogger("headwater.broker")

V1_BYTES_MAX = 107
V2_BYTES_MAX = 16 + 4096
"""Longest headers; of the second version's own fields nobody needs more."""

_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_ADDRESSES = {0x11: (4, 12), 0x21: (16, 36)}
"""Family and transport (TCP over IPv4 or IPv6): bytes of one address, and of the whole block."""

Address = tuple[Any, ...]


class ProxyHeaderError(Exception):
    """What begins like a PROXY header is none."""


def begins(data: bytes) -> bool:
    """Whether a header may begin with these bytes, of which there is at least one."""
    return bool(data) and (
        data[:12] == _SIGNATURE[: len(data)] or data[:6] == b"PROXY "[: len(data)]
    )


def parse(data: bytes) -> tuple[int, Address | None] | None:
    """Length of the header that `data` begins with, and the client's (host, port).

    The address is None when the proxy speaks for itself; the result is None while bytes are
    missing. Raises ProxyHeaderError.
    """
    if data[:12] == _SIGNATURE[: len(data)]:
        return _parse_v2(data)
    if data[:6] == b"PROXY "[: len(data)]:
        return _parse_v1(data)
    raise ProxyHeaderError("no PROXY header")


def _parse_v1(data: bytes) -> tuple[int, Address | None] | None:
    line, found, _ = data[:V1_BYTES_MAX].partition(b"\r\n")
    if not found:
        if len(data) >= V1_BYTES_MAX:
            raise ProxyHeaderError("the header's line is too long")
        return None
    words = line.decode("ascii", "replace").split(" ")
    if words[1:2] == ["UNKNOWN"]:
        return len(line) + 2, None
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
        raise ProxyHeaderError("the header's line is malformed")
    try:
        host = ipaddress.ip_address(words[2])
        ipaddress.ip_address(words[3])
    except ValueError as error:
        raise ProxyHeaderError(str(error)) from error
    ports = [int(word) if word.isascii() and word.isdigit() else -1 for word in words[4:]]
    if host.version != int(words[1][3]) or not all(0 <= port <= 65535 for port in ports):
        raise ProxyHeaderError("the header's addresses are malformed")
    return len(line) + 2, (str(host), ports[0])


def _parse_v2(data: bytes) -> tuple[int, Address | None] | None:
    if len(data) < 16:
        return None
    command, family, size = struct.unpack_from("!BBH", data, 12)
    if command not in (0x20, 0x21) or 16 + size > V2_BYTES_MAX:
        raise ProxyHeaderError("not a header of version 2 that is understood")
    if len(data) < 16 + size:
        return None
    if command == 0x20:
        return 16 + size, None
    if family not in _ADDRESSES:
        raise ProxyHeaderError("only TCP over IPv4 and IPv6 is understood")
    width, block = _ADDRESSES[family]
    if size < block:
        raise ProxyHeaderError("the header's addresses are cut short")
    host = ipaddress.ip_address(data[16 : 16 + width])
    (port,) = struct.unpack_from("!H", data, 16 + 2 * width)
    return 16 + size, (str(host), port)


class HeaderWatch:
    """Looks for a header at the begin of what one client sends; the client is halted meanwhile.

    `then(conn, address)` is called when there is one that names a client.
    """

    def __init__(
        self, conn: Any, sock: socket.socket, patience: float, then: Callable[[Any, Address], None]
    ) -> None:
        """A client that has not logged in after `patience` seconds is refused."""
        self._conn = conn
        self._sock = sock
        self._then = then
        self._loop = conn.loop
        self._header = b""
        conn.halt()
        self._timer = self._loop.call_later(patience, self._expired)
        self._loop.add_reader(sock.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        """Look at what is there, and take no byte more than the header has."""
        if self._conn.closed:
            self._timer.cancel()
            return
        try:
            seen = self._sock.recv(V2_BYTES_MAX, socket.MSG_PEEK)
            found = self._judge(seen)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, ProxyHeaderError) as error:
            log.error("cid %d: %s", self._conn.cid, error)
            self._leave()
            self._conn.close("Protocol Violation")
            return
        if found is not None:
            self._leave()
            if found:
                self._then(self._conn, found)
            self._conn.proceed()

    def _judge(self, seen: bytes) -> Address | None:
        """The client's address, () when the header or the lack of one names none; None: wait."""
        if not self._header and not begins(seen):
            return ()
        if not seen:
            raise ProxyHeaderError("the PROXY header is cut short")
        found = parse(self._header + seen)
        self._header += self._sock.recv(
            len(seen) if found is None else found[0] - len(self._header)
        )
        return None if found is None else found[1] or ()

    def _expired(self) -> None:
        if not self._conn.closed and (self._header or not self._conn.ready):
            self._leave()
            self._conn.refuse("Authentication Timeout", "Authentication Timeout")

    def _leave(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._sock.fileno())
