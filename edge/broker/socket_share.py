"""What the system may hold of a link before its socket: a quarter of a second of what it sends.

What the socket has taken cannot be overtaken any more. On a fast line it has to hold much, so that
the line does not wait for this node; on a slow one the same amount is a delay of many seconds. So
it goes by the rate at which the socket takes bytes while it is full.

A line may hold much more behind the socket: a modem, a satellite, a relay. There a PING comes back
late. So bulk that no PONG has confirmed is bounded by what both ways carry in three seconds, and
in the time that they take when they are empty.
"""

import contextlib
import socket
from collections import deque

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
# Each such time without an answer, beyond the distance of the peer, halves what may be on its way.
REST_NS = cython.declare(cython.longlong, 1_000_000_000)
# Bulk on its way along a line: at first, at least, and so much that it is not bounded.
LINE_FIRST = cython.declare(cython.longlong, 16 << 10)
LINE_MIN = cython.declare(cython.longlong, 8 << 10)
# A PING follows so many bytes of bulk, and at least an eighth of what may be on its way.
MARK_BYTES = cython.declare(cython.longlong, 4 << 10)
MARKS = cython.declare(cython.longlong, 8)
# How late a PONG may come, both ways together; at half of that, more may be on its way. Both are
# counted from the distance of the peer: the soonest PONG, and at most as much.
LATE_NS = cython.declare(cython.longlong, 3_000_000_000)
DISTANCE_MAX_NS = cython.declare(cython.longlong, 2_500_000_000)
# A PONG within this tells of a line that carries more, however little was on its way.
SOON_NS = cython.declare(cython.longlong, 50_000_000)
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


@cython.cclass
class LineWindow:
    """Bulk that the line has and the peer has not confirmed. Positions are bytes of bulk that have
    gone to the socket since the link began."""

    def __init__(self):
        self.window = LINE_FIRST
        self.distance_ns = DISTANCE_MAX_NS
        self.asked = deque()

    @cython.cfunc
    @cython.exceptval(check=False)
    def left(self, gone: cython.longlong) -> cython.longlong:
        """How much more bulk may go; LINE_MAX when it is not bounded."""
        if self.window >= LINE_MAX:
            return LINE_MAX
        return self.window - (gone - self.confirmed)

    @cython.cfunc
    @cython.exceptval(check=False)
    def aged(self, now: cython.longlong) -> cython.bint:
        """Whether less may be on its way since no answer came for a while: after a pause, or from a
        line that has become slow, what the last one told is old."""
        rests: cython.longlong = (now - self.known_ns - self.distance_ns) // REST_NS
        if self.window <= LINE_FIRST or rests <= 0:
            return False
        self.known_ns += rests * REST_NS
        self.window = max(LINE_FIRST, self.window >> min(rests, 16))
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def wants_mark(self, gone: cython.longlong) -> cython.bint:
        """Whether a PING should follow what has gone."""
        if gone - self.marked >= max(MARK_BYTES, self.window // MARKS):
            return True
        return not self.marks and gone > self.marked and self.left(gone) <= 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def mark(self, gone: cython.longlong, now: cython.longlong) -> cython.int:
        """A PING follows what has gone."""
        self.marked = gone
        self.marks += 1
        self.asked.append((gone, gone - self.confirmed, now))
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def other_ping(self) -> cython.int:
        """A PING for something else is on its way."""
        self.asked.append(None)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def answered(self, now: cython.longlong) -> cython.bint:
        """A PONG came: whether it answers a mark."""
        at: cython.longlong
        outstanding: cython.longlong
        asked: cython.longlong
        late: cython.longlong
        found: tuple = self.asked.popleft() if self.asked else None
        if found is None:
            return False
        at, outstanding, asked = found
        self.marks -= 1
        self.known_ns = now
        late = now - asked
        self.distance_ns = min(self.distance_ns, late)
        late -= self.distance_ns
        if late > LATE_NS:
            if at > self.shrunk:
                self.shrunk = self.marked
                fits: cython.double = min(outstanding, self.window)
                fits *= LATE_NS / cython.cast(cython.double, late)
                self.window = max(LINE_MIN, cython.cast(cython.longlong, fits))
        elif (
            self.window < LINE_MAX
            and late < LATE_NS // 2
            and (outstanding * 2 > self.window or late < SOON_NS)
        ):
            self.window += at - self.confirmed
        self.confirmed = at
        return True
