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
from cython.cimports.headwater.edge.broker.core import KIND_LEAF, Kernel, Msg
from cython.cimports.headwater.edge.broker.link import Link, RemoteSub
from cython.cimports.headwater.edge.subjects.trie import Match
from cython.cimports.headwater.federation.rules import Rules, exempt
from cython.cimports.libc.string import memcmp

# The link whose message is being routed, and that message: it must not reach another member of
# the peer's cluster.
routing_link = cython.declare(object, None)
routing_message = cython.declare(cython.pointer(Msg), cython.NULL)


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
        self.may_send = self.may_receive = self.may_ask = Rules()
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
        global routing_link, routing_message
        subject: bytes
        if not exempt(m.subject, m.subject_len) and not self.may_come(m):
            self.session.message_denied(self, text_of(m.subject, m.subject_len))
            return 0
        if self.account.mappings is not None:
            subject = text_of(m.subject, m.subject_len)
            mapped: bytes = self.account.mappings.apply(subject)
            if mapped != subject:
                # The sender could not know the queue groups behind the mapping.
                only = only or None
                subject = mapped
                m.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(subject))
                m.subject_len = PyBytes_GET_SIZE(subject)
        routing_link = self
        routing_message = m
        try:
            self.route(self.account, m, self.match_for(m.subject, m.subject_len), only)
        finally:
            routing_link = None
            routing_message = cython.NULL
        return 0

    def admits(self, subject: bytes) -> bool:
        """Whether the link's rules let the peer publish on a literal subject."""
        return self.may_receive.permits_message(subject)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def may_come(self, m: cython.pointer(Msg)) -> cython.bint:
        """Whether a message may come in: under its own subject, and, when it is a request by the
        alias of a JetStream domain, not against a deny of what it really asks for."""
        if not self.may_receive.permits(m.subject, m.subject_len):
            return False
        if not self.may_ask.deny or m.subject[0] != 36 or self.account.domain_prefix is None:
            return True
        served: bytes = self.account.served_as(text_of(m.subject, m.subject_len))
        return self.may_ask.permits(
            cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(served)), PyBytes_GET_SIZE(served)
        )

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
        """Whether a message may go to the peer: not by the rules, nor back to its cluster."""
        if not self.may_send.permits(m.subject, m.subject_len):
            return False
        return not (
            routing_message == m
            and self.cluster
            and routing_link is not None
            and cython.cast(LeafConn, routing_link).cluster == self.cluster
        )

    # --- interest ----------------------------------------------------

    def interest_added(self, args: list) -> None:
        """LS+ <subject> [<queue> <weight>]."""
        wanted = self.wanted(args)
        if wanted is None or not self.session.may_add_interest(self, args[0]):
            return
        subject, queue, weight = wanted
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

    def admit(self, account: Account, may_send: Rules, may_receive: Rules) -> None:
        """Let interest and messages of the link into `account`."""
        self.account = account
        self.may_send = may_send
        self.may_receive = may_receive
        self.ready = True
        self.prove()

    def ended(self) -> None:
        """Forget the peer's interest."""
        self.ready = False
        for sub in list(self.subs.values()):
            self.account.remove(sub)
        self.subs.clear()
