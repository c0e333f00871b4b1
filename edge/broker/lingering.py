"""The end of a socket: what comes is discarded for a while, so that no reset eats the last line.

Where that line is to reach nobody any more, a reset is wanted: it takes along what waits to be
sent, and what was sent and is on no line any more.
"""

import asyncio
import socket
import struct

SHUT_WRITE = 1
"""Of shutdown(2)."""
LINGER_S = 0.5
"""That a peer has to read the last line. One that closes ends it earlier."""
LINGER_BYTES = 16 << 20
"""What can have been on its way. A peer that sends more is not reading, and is reset."""

AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for no time."""


def reset_at_close(sock: socket.socket) -> None:
    """Have the end of a socket be a reset: the system sends nothing of it any more."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)


class Lingering:
    """Owns a socket whose connection has ended; nobody else reads or writes it any more."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        self.loop = loop
        self.sock: socket.socket | None = sock
        self.left = LINGER_BYTES
        try:
            sock.shutdown(SHUT_WRITE)
        except OSError:
            sock.close()
            self.sock = None
            return
        loop.add_reader(sock.fileno(), self._discard)
        loop.call_later(LINGER_S, self._close)

    def _discard(self) -> None:
        assert self.sock is not None
        try:
            n = len(self.sock.recv(1 << 16))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            n = 0
        self.left -= n
        if n == 0 or self.left < 0:
            self._close()

    def _close(self) -> None:
        if self.sock is not None:
            self.loop.remove_reader(self.sock.fileno())
            self.sock.close()
            self.sock = None
