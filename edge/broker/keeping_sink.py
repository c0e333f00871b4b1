"""A sink that keeps what it gets, until somebody else listens to the same subject: its heir.

Other nodes hear of the heir at different times. So for a moment the sink passes on what comes by
routes, except from the node of the heir: its sender may not know the heir yet. One that does sends
this node nothing (`hub/routes/kept_inboxes.py`). What comes from nodes that know nothing of all
this is not kept: once they know the heir, they send to both.

What was kept goes to the heir alone: everybody else got it when it came.
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.broker.account import Account, set_message
from cython.cimports.headwater.edge.kernel.kernel import (
    KIND_INTERNAL,
    KIND_LEAF,
    Endpoint,
    Kernel,
    Msg,
    Sink,
)
from cython.cimports.headwater.edge.subjects.trie import Match

KEPT_MAX = cython.declare(cython.Py_ssize_t, 1000)
KEPT_BYTES_MAX = cython.declare(cython.Py_ssize_t, 1 << 20)


@cython.cclass
class KeepingSink(Sink):
    """Keeps up to 1,000 messages and 1 MiB of one account; more is not taken.

    `routes` are those whose nodes know that it keeps. `hand` is called with the account, the heir,
    and subject, payload, reply, headers and shown reply of a message that goes to it.
    """

    account: Account
    kept: list
    size: cython.Py_ssize_t
    routes: frozenset
    hand: object
    heir = cython.declare(Sink, visibility="public")

    def __init__(self, account: Account, subject: bytes, routes: frozenset, hand: object):
        Sink.__init__(self, subject, None)
        self.account = account
        self.kept = []
        self.routes = routes
        self.hand = hand

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Keep a message; 0 when there is no room for it, or it comes another way."""
        body: cython.p_char = cython.cast(cython.p_char, m.body)
        if self.closed or not self.misses(m, sender):
            return 0
        if len(self.kept) >= KEPT_MAX or self.size + m.size > KEPT_BYTES_MAX:
            return 0
        if self.heir is not None:
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

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def misses(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.bint:
        """Whether the client gets a message by this sink only."""
        kernel: Kernel = self.account.kernel
        by: Endpoint = kernel.arrived_by if kernel.arrived == m else None
        owner: Endpoint
        if by is not None and by.kind > KIND_INTERNAL and by not in self.routes:
            return False
        if self.heir is None:
            return True
        owner = self.heir.owner
        if owner is None or sender is owner or owner.may_reach(m):
            # It goes to the heir without this sink, behind what was kept: also what came by a
            # route and was led back to here from another account.
            if self.kept:
                self.pass_on()
            return False
        # A hub tells the heir's node by that one's own link.
        return by is None or by.kind != KIND_LEAF

    def pass_on(self) -> int:
        """Give the heir what is kept; returns how much that was."""
        kept: list = self.kept
        self.kept = []
        self.size = 0
        for message in kept:
            self.hand(self.account, self.heir, *message)
        return len(kept)


def hand_to(
    account: Account,
    sinks: tuple,
    subject: bytes,
    payload: bytes,
    reply: bytes,
    headers: bytes,
    shown: bytes,
) -> None:
    """Deliver a message to these sinks of an account alone; `headers` is a whole block or empty."""
    m: Msg
    body: bytes = headers + payload
    set_message(cython.address(m), subject, body, PyBytes_GET_SIZE(headers), reply, shown)
    account.route(cython.address(m), None, Match(sinks, ()), None)
    if not account.kernel.turning:
        account.kernel.kick()
