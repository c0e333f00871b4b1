"""Sees measured requests that came from other servers, and the answers of who serves here.

No peer is told of such a sink: it wants nothing, and nobody is served by it.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.headwater.edge.kernel.kernel import (
    KIND_CLIENT,
    KIND_INTERNAL,
    Endpoint,
    Msg,
    Sink,
)
from cython.cimports.libc.string import memcmp

# What the reply subjects of measured requests begin and end with (nats-server's `isTrackedReply`).
BEGIN = cython.declare(cython.p_const_char, b"_R_.")
# The answers to them: prefix of the account, request, server.
ANSWERS = b"_R_.*.*.*.T"


@cython.cclass
class RequestWatch(Sink):
    """Stands on the subject of a measured service; calls `seen(reply)` with a measured request of
    another server."""

    seen: object

    def __init__(self, subject: bytes, seen: object):
        Sink.__init__(self, subject)
        self.seen = seen

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Always 0: nobody is served."""
        reply: cython.p_char = cython.cast(cython.p_char, m.reply)
        n: cython.Py_ssize_t = m.reply_len
        if self.closed or sender is None or n < 8:
            return 0
        if sender.kind == KIND_CLIENT or sender.kind == KIND_INTERNAL:
            return 0
        if memcmp(reply, BEGIN, 4) == 0 and reply[n - 2] == b"." and reply[n - 1] == b"T":
            self.seen(PyBytes_FromStringAndSize(reply, n))
        return 0


@cython.cclass
class AnswerWatch(Sink):
    """Stands on the answers to measured requests in one account; calls `seen(subject, sender)` with
    what comes from who is connected here, or behind a leaf link."""

    seen: object

    def __init__(self, seen: object):
        Sink.__init__(self, ANSWERS)
        self.seen = seen

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Always 0: the answer is wanted elsewhere."""
        subject: cython.p_char = cython.cast(cython.p_char, m.subject)
        if not self.closed and (sender is None or sender.kind <= KIND_INTERNAL):
            self.seen(PyBytes_FromStringAndSize(subject, m.subject_len), sender)
        return 0
