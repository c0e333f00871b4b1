"""Links by which answers are missed: whether they still live.

A link whose other side is gone may stay open, behind a router or a proxy, until PINGs of half a
minute each were not answered. Who misses something says so, and the link is asked at once.
"""

import contextlib
import fcntl
import struct
import termios
from typing import Any

PATIENCE_S = 15.0
"""Time that a doubted link has for a byte."""

ON_ITS_WAY_MAX = 16 << 10
"""Bytes that the peer's system has not got yet; with more, a PING may wait for longer."""


def on_its_way(sock: Any) -> int:
    """Bytes that the peer's system has not confirmed; 0 where nobody can tell."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return int(struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))[0])
    return 0


class Doubts:
    """Links that have to show that they live."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._asked: set[int] = set()

    def doubt(self, conn: Any) -> None:
        """Have a link answer, or end it. One with much on its way is not asked: whether it takes
        that is seen elsewhere."""
        idle = not conn.pending and on_its_way(conn.sock) < ON_ITS_WAY_MAX
        if conn.closed or conn.cid in self._asked or not idle:
            return
        self._asked.add(conn.cid)
        if not conn.pinged_ns:
            conn.session.ping(conn)
        self._loop.call_later(PATIENCE_S, self._judge, conn, conn.read_bytes)

    def _judge(self, conn: Any, before: int) -> None:
        self._asked.discard(conn.cid)
        if not conn.closed and conn.read_bytes == before:
            conn.fail("Stale Connection", "Stale Connection")
