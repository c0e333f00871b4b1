"""The window of a push consumer with flow control (ADR-9).

The receiver confirms what it got by answering flow control requests. A request goes out when more
than half of the window is outstanding and none is in flight; delivery stops while more than the
window is outstanding. The window starts small and doubles with every confirmation.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.libc.string import memcmp

WINDOW_MAX = cython.declare(cython.longlong, 32 << 20)
WINDOW_FIRST = cython.declare(cython.longlong, 2 << 20)


@cython.cclass
class FlowWindow:
    """Bytes on their way to one receiver."""

    def __init__(self):
        self.window = WINDOW_FIRST

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def blocked(self) -> cython.bint:
        return self.outstanding > self.window

    @cython.cfunc
    @cython.exceptval(check=False)
    def sent(self, size: cython.Py_ssize_t) -> cython.bint:
        """Count a delivery; whether a flow control request should follow it."""
        self.outstanding += size
        if self.token is None:
            return self.outstanding * 2 > self.window
        if self.outstanding - self.asked >= self.window:
            self.asked += size
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def ask(self, token: bytes) -> cython.int:
        """A request that `token` answers is on its way."""
        self.asked = self.outstanding
        self.token = token
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def confirmed(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
        """Take an answer; False when it is not that of the latest request."""
        if self.token is None or n != PyBytes_GET_SIZE(self.token):
            return False
        if memcmp(subject, PyBytes_AS_STRING(self.token), n) != 0:
            return False
        self.window = min(self.window * 2, WINDOW_MAX)
        self.outstanding = max(0, self.outstanding - self.asked)
        self.asked = 0
        self.token = None
        return True
