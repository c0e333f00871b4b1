"""The leaf protocol on one link (NATS leaf node protocol; both ends).

The peer's interest stands in one account. Who may link, and what may pass, is decided by `session`.
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.broker.authorize import PUBLISH, Peer, authorize
from cython.cimports.headwater.edge.broker.halts import Gate
from cython.cimports.headwater.edge.broker.link import Link, RemoteSub
from cython.cimports.headwater.edge.kernel.kernel import (
    KIND_CLIENT,
    KIND_LEAF,
    Endpoint,
    Kernel,
    Msg,
)
from cython.cimports.headwater.edge.subjects.trie import Match
from cython.cimports.libc.string import memcmp


@cython.cfunc
def text_of(text: cython.p_const_uchar, n: cython.Py_ssize_t) -> bytes:
    return PyBytes_FromStringAndSize(cython.cast(cython.p_char, text), n)


@cython.cclass
class LeafConn(Link):
    """One leaf link, on either end."""

    def __init__(self, session: object, kernel: Kernel, cid: int, max_pending: int):
        Link.__init__(self, session, kernel, cid, max_pending, b"L", False)
        self.kind = KIND_LEAF
        self.cluster = b""
        self.max_payload = 1 << 20

    # --- messages ----------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def inbound(
        self,
        name: cython.p_const_uchar,
        n: cython.Py_ssize_t,
        m: cython.pointer(Msg),
        only: tuple,
    ) -> cython.int:
        """Route a message of the peer to everybody who wants it here and beyond."""
        subject: bytes
        self.asked_subject = None
        if not authorize(self.principal, PUBLISH, m.subject, m.subject_len, m.via, None):
            self.session.message_denied(self, text_of(m.subject, m.subject_len))
            return 0
        if self.account.remaps(m.subject, m.subject_len):
            subject = text_of(m.subject, m.subject_len)
            mapped: bytes = self.account.mapped(subject)
            if mapped != subject:
                # The sender could not know the queue groups behind the mapping.
                only = only or None
                self.asked_subject = subject
                subject = mapped
                m.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(subject))
                m.subject_len = PyBytes_GET_SIZE(subject)
        self.kernel.arrived_from = self.cluster
        self.route(self.account, m, self.match_for(m.subject, m.subject_len), only)
        return 0

    @cython.cfunc
    def match_for(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> Match:
        """The match of a subject; that of the previous message when it is the same subject."""
        if (
            self.last_subject is not None
            and self.last_generation == self.account.generation
            and PyBytes_GET_SIZE(self.last_subject) == n
            and memcmp(PyBytes_AS_STRING(self.last_subject), subject, n) == 0
        ):
            return self.last_match
        self.last_match = self.account.match(subject, n)
        self.last_subject = PyBytes_FromStringAndSize(cython.cast(cython.p_char, subject), n)
        self.last_generation = self.account.generation
        return self.last_match

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def may_leave(self, m: cython.pointer(Msg)) -> cython.bint:
        """Whether a message may go to the peer: by the rules, and not back to its cluster. What
        came from another node of the spoke's cluster has gone to the hub by that node's link."""
        if not Link.may_leave(self, m):
            return False
        if self.kernel.arrived != m:
            return True
        if self.spoke and self.kernel.arrived_by.kind != KIND_LEAF:
            return False
        return not (self.cluster and self.kernel.arrived_from == self.cluster)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def rest_for(self, receiver: Endpoint) -> cython.int:
        """As of Link, but not for a client: nothing that uses the link could go on meanwhile, and
        in the end the peer would cut it. The client is cut beyond its `max_pending`, as by
        nats-server."""
        if receiver.kind != KIND_CLIENT and not isinstance(receiver, Gate):
            return self.pause()
        self.kernel.congested = None
        return 0

    # --- interest ----------------------------------------------------

    def interest_added(self, args: list) -> None:
        """LS+ <subject> [<queue> <weight>]."""
        wanted = self.wanted(args)
        if wanted is None:
            return
        subject, queue, weight = wanted
        if not self.session.may_add_interest(self, subject, queue):
            return
        sub = RemoteSub(self, subject, queue, weight)
        self.keep_interest((subject, queue), self.account, sub)

    def interest_removed(self, args: list) -> None:
        """LS- <subject> [<queue>]."""
        if not 1 <= len(args) <= 2:
            self.broken("Parse Error")
            return
        sub = self.subs.pop((args[0], args[1] if len(args) == 2 else None), None)
        if sub is not None:
            self.account.remove(sub)

    def admit(self, account: Account, principal: Peer) -> None:
        """Let interest and messages of the link into `account`, as far as `principal` may."""
        self.account = account
        self.principal = principal
        self.ready = True
        self.prove()

    def ended(self) -> None:
        """Forget the peer's interest, and what it asked to hold back."""
        self.ready = False
        self.halts.end()
        for sub in list(self.subs.values()):
            self.account.remove(sub)
        self.subs.clear()
