"""A sink that keeps what it gets, until somebody else listens to the same subject.

Other nodes hear of the new subscription at different times. So for a moment the sink passes on what
comes by routes, except from the node of the heir: its sender may not know the heir yet. One that
does, and knows that this sink only keeps (`hub/cluster/kept_inboxes.py`), sends it nothing. Where
it does not know that, a message comes twice.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.kernel.kernel import Endpoint, Msg, Sink

KEPT_MAX = cython.declare(cython.Py_ssize_t, 1000)
KEPT_BYTES_MAX = cython.declare(cython.Py_ssize_t, 1 << 20)


@cython.cclass
class KeepingSink(Sink):
    """Keeps up to 1,000 messages and 1 MiB of one account; more is not taken."""

    account: Account
    kept: list
    size: cython.Py_ssize_t
    heir = cython.declare(Sink, visibility="public")

    def __init__(self, account: Account, subject: bytes):
        Sink.__init__(self, subject, None)
        self.account = account
        self.kept = []

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Keep a message; 0 when there is no room for it."""
        body: cython.p_char = cython.cast(cython.p_char, m.body)
        if self.closed or len(self.kept) >= KEPT_MAX or self.size + m.size > KEPT_BYTES_MAX:
            return 0
        if self.heir is not None:
            # What may go to the heir goes there without this sink: also what came by a route and
            # was led back to here from another account.
            owner: Endpoint = self.heir.owner
            if owner is None or sender is owner or owner.may_reach(m):
                return 0
            self.account.kernel.loop.call_soon(self.pass_on)
        self.size += m.size
        self.delivered += 1
        self.kept.append(
            (
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.subject), m.subject_len),
                PyBytes_FromStringAndSize(body + m.header_len, m.size - m.header_len),
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.reply), m.reply_len)
                if m.reply_len
                else b"",
                PyBytes_FromStringAndSize(body, m.header_len) if m.header_len else b"",
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.shown), m.shown_len)
                if m.shown_len
                else b"",
            )
        )
        return 1

    def release(self, heir: Sink) -> int:
        """Publish what was kept, as it came, and what comes by routes from now on; `heir` is the
        sink of who listens now. Returns how much was kept."""
        self.heir = heir
        return self.pass_on()

    def pass_on(self) -> int:
        """Publish what is kept; returns how much that was."""
        kept: list = self.kept
        self.kept = []
        self.size = 0
        for subject, payload, reply, headers, shown in kept:
            self.account.send(subject, payload, reply, headers, shown)
        return len(kept)
