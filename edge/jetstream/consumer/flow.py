"""The window of a push consumer with flow control (ADR-9).

The receiver confirms what it got by answering flow control requests. A request goes out when more
than half of the window is outstanding and none is in flight; delivery stops while more than the
window is outstanding.

The window holds what the receiver takes in two seconds, as its answers show: a slow link is kept
busy, and whatever else has to cross it waits no longer than that and one message. It starts with
two seconds of 64 kbit/s. On a fast link an answer comes so soon that the next window is full size.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.libc.string import memcmp

WINDOW_MAX = cython.declare(cython.longlong, 32 << 20)
WINDOW_MIN = cython.declare(cython.longlong, 16 << 10)
# What may be on its way, as time that the receiver needs for it.
WINDOW_SECONDS = cython.declare(cython.double, 2.0)
SECOND_NS = cython.declare(cython.double, 1e9)


@cython.cclass
class FlowWindow:
    """Bytes on their way to one receiver."""

    def __init__(self):
        self.window = WINDOW_MIN

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def blocked(self) -> cython.bint:
        return self.outstanding > self.window

    @cython.cfunc
    @cython.exceptval(check=False)
    def wants(self) -> cython.bint:
        """Whether a flow control request should be made now."""
        return self.token is None and self.outstanding * 2 > self.window

    @cython.cfunc
    @cython.exceptval(check=False)
    def sent(self, size: cython.Py_ssize_t, now: cython.longlong) -> cython.bint:
        """Count a delivery; whether a flow control request should follow it."""
        if self.outstanding == 0:
            self.since = now
        self.outstanding += size
        if self.token is None:
            return self.wants()
        if self.outstanding - self.asked >= self.window:
            self.asked += size
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def ask(self, token: bytes) -> cython.int:
        """A request that `token` answers is on its way."""
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
        self.resize(self.covered * SECOND_NS / max(now - self.since, 1))
        self.since = now
        self.outstanding = max(0, self.outstanding - self.asked)
        self.asked = 0
        self.token = None
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def resize(self, rate: cython.double) -> cython.void:
        """Fit the window to a rate, in bytes a second. One late answer at most halves it."""
        wanted: cython.double = rate * WINDOW_SECONDS
        if wanted >= WINDOW_MAX:
            self.window = WINDOW_MAX
        else:
            self.window = max(
                WINDOW_MIN, self.window // 2, cython.cast(cython.longlong, wanted)
            )
