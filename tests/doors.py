"""The text protocol through every listener of clients: plain, TLS and WebSocket."""

import contextlib
import json
import select
import socket
import ssl
import threading
from collections.abc import Callable

from headwater.edge.conf.options import TLSOptions
from tests.dial import dial
from tests.operator_realm import TIMEOUT, Raw

DOORS = ("client", "tls", "websocket")
UPGRADE = (
    b"GET %s HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
CLOSE = 8
PART_BYTES = 65_535
"""Longest frame that is sent: of sixteen bits."""


def settings(door: str, port: int, tls: TLSOptions) -> str:
    """What a configuration says beside the client port for this door; `port` is WebSocket's."""
    if door == "tls":
        return f"tls {{ cert_file: '{tls.cert_file}', key_file: '{tls.key_file}' }}\n"
    if door == "websocket":
        return f"websocket {{ listen: '127.0.0.1:{port}', no_tls: true }}\n"
    return ""


class Through(Raw):
    """A connection of the text protocol through a door; `path` is what a WebSocket asks for."""

    def __init__(self, door: str, port: int, path: str = "/") -> None:
        if door == "client":
            super().__init__(port)
            return
        outside = dial(port, TIMEOUT)
        self.socket, inside = socket.socketpair()
        self.socket.settimeout(TIMEOUT)
        self.file = self.socket.makefile("rb")
        first = b""
        if door == "tls":
            while not first.endswith(b"\r\n"):
                first += outside.recv(1)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            outside = context.wrap_socket(outside)
            pump = (bytes, bytes)
        else:
            outside.sendall(UPGRADE % path.encode())
            while not first.endswith(b"\r\n\r\n"):
                first += outside.recv(1)
            pump = (_framed, _Frames())
        threading.Thread(target=_carry, args=(outside, inside, *pump), daemon=True).start()
        self.info = json.loads((first if door == "tls" else self.file.readline())[5:])


def _framed(data: bytes) -> bytes:
    """A binary frame whose mask changes nothing."""
    size = len(data)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return b"\x82" + length + bytes(4) + data


class _Frames:
    """What frames of a server carry, until it closes."""

    def __init__(self) -> None:
        self._left = b""

    def __call__(self, data: bytes) -> bytes | None:
        self._left += data
        found = b""
        while len(self._left) >= 2:
            extra = {126: 2, 127: 8}.get(self._left[1], 0)
            size = int.from_bytes(self._left[2 : 2 + extra], "big") if extra else self._left[1]
            end = 2 + extra + size
            if len(self._left) < end:
                break
            if self._left[0] & 15 == CLOSE:
                return found or None
            found += self._left[2 + extra : end]
            self._left = self._left[end:]
        return found


def _carry(
    outside: socket.socket,
    inside: socket.socket,
    out: Callable[[bytes], bytes],
    back: Callable[[bytes], bytes | None],
) -> None:
    """Pass bytes on in both directions until one side ends."""
    with contextlib.suppress(OSError), outside, inside:
        while True:
            waiting = isinstance(outside, ssl.SSLSocket) and outside.pending()
            ready = [outside] if waiting else select.select([outside, inside], [], [])[0]
            if inside in ready:
                data = inside.recv(PART_BYTES)
                if not data:
                    return
                outside.sendall(out(data))
            if outside in ready:
                # A session's ticket makes a TLS socket readable, and is nothing to read.
                outside.settimeout(0)
                try:
                    data = outside.recv(1 << 16)
                except ssl.SSLWantReadError:
                    continue
                finally:
                    outside.settimeout(TIMEOUT)
                told = back(data) if data else None
                if told is None:
                    return
                inside.sendall(told)
