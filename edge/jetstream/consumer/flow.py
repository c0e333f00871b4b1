"""The window of a push consumer with flow control (ADR-9).

The receiver confirms what it got by answering flow control requests. A request goes out when more
than half of the window is outstanding and none is in flight; delivery stops while more than the
window is outstanding.

The window holds what the receiver takes in two seconds, as its answers show: a slow link is kept
busy, and whatever else has to cross it waits no longer than that and one message. It starts with
one second of 64 kbit/s, and is half of that where many streams share such a link: each has at least
this under way. On a fast link a few answers make it full size.

The soonest answer shows how far the receiver is, there and back. That time is left out: of what has
come between two answers, the first was on its way for as long. So the window becomes two seconds'
worth and what fills twice the distance: half of it is confirmed in the time there and back.

A receiver that has nearly all of its stream gets what is fresh ahead of the history of others:
while little is outstanding, deliveries are urgent on links. Once more is, they are bulk. They stay
so until the receiver has confirmed all of them: none may pass another of its own.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.libc.string import memcmp

WINDOW_MAX = cython.declare(cython.longlong, 32 << 20)
WINDOW_FIRST = cython.declare(cython.longlong, 8 << 10)
WINDOW_MIN = cython.declare(cython.longlong, 4 << 10)
# What may be on its way, as time that the receiver needs for it.
WINDOW_SECONDS = cython.declare(cython.double, 2.0)
# What counts of the receiver's distance at most: an answer can be late for other reasons.
DISTANCE_MAX_NS = cython.declare(cython.longlong, 2_500_000_000)
# What has come counts as taken in this time at least: one answer makes the window 16 times as large
# at most.
TAKEN_MIN_NS = cython.declare(cython.longlong, 62_500_000)
# What may be outstanding and urgent.
FRESH_MAX = cython.declare(cython.longlong, 4 << 10)
# One who is up to date is asked whether all has arrived this often at most.
SETTLE_NS = cython.declare(cython.longlong, 100_000_000)
SECOND_NS = cython.declare(cython.double, 1e9)


@cython.cclass
class FlowWindow:
    """Bytes on their way to one receiver."""

    def __init__(self):
        self.window = WINDOW_FIRST
        self.fresh = True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def blocked(self) -> cython.bint:
        return self.holding or self.outstanding > self.window

    @cython.cfunc
    @cython.exceptval(check=False)
    def wants(self) -> cython.bint:
        """Whether a flow control request should be made now."""
        window: cython.longlong = FRESH_MAX if self.fresh else self.window
        return self.token is None and self.outstanding * 2 > window

    @cython.cfunc
    @cython.exceptval(check=False)
    def goes_ahead(self, size: cython.Py_ssize_t) -> cython.bint:
        """Whether the next delivery, of `size` bytes, is urgent on links."""
        if self.fresh and self.outstanding + size > FRESH_MAX:
            self.fresh = False
        return self.fresh

    @cython.cfunc
    @cython.exceptval(check=False)
    def settles(self, now: cython.longlong) -> cython.bint:
        """Whether a receiver that all has been sent to should confirm it, to be fresh again."""
        return (
            not self.fresh
            and self.token is None
            and self.outstanding > 0
            and now - self.asked_ns > max(SETTLE_NS, self.answer_ns)
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def sent(self, size: cython.Py_ssize_t, now: cython.longlong) -> cython.bint:
        """Count a delivery; whether a flow control request should follow it."""
        if self.outstanding == 0:
            self.since = now
        self.outstanding += size
        self.whole = False
        if self.token is None:
            return self.wants()
        if self.outstanding - self.asked >= self.window:
            self.asked += size
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def ask(self, token: bytes, now: cython.longlong) -> cython.int:
        """A request that `token` answers is on its way."""
        self.early = self.outstanding * 2 <= self.window
        # What came now would be behind the request, and is there sooner if it waits for the answer.
        self.holding = self.early and not self.fresh and self.outstanding <= FRESH_MAX
        self.whole = True
        self.asked_ns = now
        self.asked = self.covered = self.outstanding
        self.token = token
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def confirmed(
        self, subject: cython.p_const_uchar, n: cython.Py_ssize_t, now: cython.longlong
    ) -> cython.bint:
        """Take an answer; False when it is not that of the latest request."""
        if self.token is None or n != PyBytes_GET_SIZE(self.token):
            return False
        if memcmp(subject, PyBytes_AS_STRING(self.token), n) != 0:
            return False
        self.holding = False
        self.answer_ns = now - self.asked_ns
        if self.answer_ns - self.distance_ns > WINDOW_SECONDS * SECOND_NS:
            self.early = False
        spent: cython.longlong = max(now - self.since - self.distance_ns, TAKEN_MIN_NS)
        self.resize(self.covered * SECOND_NS / spent)
        if self.distance_ns == 0:
            self.distance_ns = DISTANCE_MAX_NS
        self.distance_ns = min(self.distance_ns, self.answer_ns)
        self.since = now
        self.outstanding = max(0, self.outstanding - self.asked)
        self.asked = 0
        self.token = None
        if self.whole:
            self.fresh = True
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def resize(self, rate: cython.double) -> cython.void:
        """Fit the window to a rate, in bytes a second. One late answer at most halves it; a request
        that came early, and was answered in time, says how fast the receiver is at least."""
        wanted: cython.double = rate * WINDOW_SECONDS
        if self.early and wanted <= self.window:
            return
        if wanted >= WINDOW_MAX:
            self.window = WINDOW_MAX
        else:
            self.window = max(
                WINDOW_MIN, self.window // 2, cython.cast(cython.longlong, wanted)
            )
