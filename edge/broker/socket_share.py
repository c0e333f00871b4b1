"""What the system may hold of a link before its socket: a quarter of a second of what it sends.

What the socket has taken cannot be overtaken any more. On a fast line it has to hold much, so that
the line does not wait for this node; on a slow one the same amount is a delay of many seconds. So
it goes by the rate at which the socket takes bytes while it is full.
"""

import contextlib
import socket

import cython

# What a link may have there whose rate nobody knows yet.
SHARE_FIRST = cython.declare(cython.longlong, 16 << 10)
# About two packets: less would cost more calls, and spare little.
SHARE_MIN = cython.declare(cython.longlong, 4 << 10)
# Beyond this many bytes the system is bounded by nothing else than this.
SHARE_MAX = cython.declare(cython.longlong, 128 << 10)
# Of a second's bytes: what may be held.
SHARES = cython.declare(cython.longlong, 4)
# Deliveries that may wait: before a rate is known, at least, and as a share of a second's bytes.
DELIVERIES_FIRST = cython.declare(cython.longlong, 256 << 10)
DELIVERIES_MIN = cython.declare(cython.longlong, 32 << 10)
DELIVERIES_SHARES = cython.declare(cython.longlong, 50)
# How long a socket is watched until its rate counts, or less when so many shares have passed.
WATCH_NS = cython.declare(cython.longlong, 250_000_000)
WATCH_LEAST_NS = cython.declare(cython.longlong, 5_000_000)
WATCH_SHARES = cython.declare(cython.longlong, 8)
SECOND = cython.declare(cython.longlong, 1_000_000_000)
NOT_SENT = getattr(socket, "TCP_NOTSENT_LOWAT", None)


@cython.cclass
class SocketShare:
    """The bound of one socket. `most` is in bytes, from 4 KiB to 128 KiB."""

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def begin(self, rate: cython.longlong, sock: object) -> cython.int:
        """Nothing has been sent. `rate` is what the socket is kept to, in bytes a second, or 0."""
        self.most = min(max(rate // SHARES, SHARE_MIN), SHARE_MAX - 1) if rate else SHARE_FIRST
        self.put_bound(sock)
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def bounds(self) -> cython.bint:
        """Whether the socket is given no more than `most` at a time."""
        return self.most < SHARE_MAX

    @cython.cfunc
    @cython.exceptval(check=False)
    def deliveries(self) -> cython.longlong:
        """How many bytes of deliveries may wait before the socket."""
        if self.rate == 0:
            return DELIVERIES_FIRST
        return max(DELIVERIES_MIN, self.rate // DELIVERIES_SHARES)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def left(self, passed: cython.ulonglong, now: cython.longlong, sock: object) -> cython.int:
        """The socket has as much as it may have, after `passed` bytes since its beginning. `now` is
        in monotonic ns."""
        elapsed: cython.longlong = now - self.since_ns
        taken: cython.longlong = passed - self.since
        seen: cython.bint = elapsed >= WATCH_LEAST_NS and taken >= WATCH_SHARES * self.most
        if self.since_ns and elapsed < WATCH_NS and not seen:
            return 0
        if self.since_ns:
            self.rate = taken * SECOND // max(elapsed, 1)
            self.fit(self.rate // SHARES, sock)
        self.since_ns = now
        self.since = passed
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def emptied(self) -> cython.void:
        """Nothing waits: until something does again, what passes tells nothing of the line."""
        self.since_ns = 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def fit(self, wanted: cython.longlong, sock: object) -> cython.int:
        """Hold about `wanted` bytes from now on."""
        wanted = min(max(wanted, SHARE_MIN), SHARE_MAX)
        if wanted != self.most:
            self.most = wanted
            self.put_bound(sock)
        return 0

    def release(self, sock: object) -> None:
        """Hold what a fast line may have: what waits is the last."""
        self.most = SHARE_MAX
        self.put_bound(sock)

    def put_bound(self, sock: object) -> None:
        """Let the system know. One that has no such bound holds what it likes."""
        if NOT_SENT is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, NOT_SENT, self.most)
