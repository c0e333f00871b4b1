"""What this node wants from the peer of one leaf link, kept true by LS+ and LS- lines.

The sources of the account's subject mappings are interest, too: what comes on them goes on to
subjects that somebody may want. A spoke speaks for itself and for the spokes behind it, and not for
other nodes of its cluster, which have links of their own. A hub speaks for everybody but the peer
and its cluster, by whichever of its own nodes that is linked.
"""

import cython
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.broker.authorize import Peer
from cython.cimports.headwater.edge.broker.interest_counts import InterestCounts
from cython.cimports.headwater.edge.broker.link import RemoteSub
from cython.cimports.headwater.edge.kernel.kernel import KIND_LEAF, Sink
from cython.cimports.headwater.federation.leaf.leaf_conn import LeafConn

from headwater.edge.broker.imports.latency_watch import AnswerWatch, RequestWatch

LOOP_PREFIX = b"$LDS."


@cython.cclass
class Interest(InterestCounts):
    """The account's interest as its peer knows it."""

    conn: LeafConn
    principal: Peer
    isolated: cython.bint
    mapped: frozenset

    def __init__(self, conn: LeafConn, isolated: bool):
        InterestCounts.__init__(self, b"L", b"")
        self.conn = conn
        self.principal = conn.principal
        self.isolated = isolated
        self.mapped = frozenset()

    def begin(self, account: Account, always: list) -> None:
        """Tell the peer everything at once, with the subjects of `always` in any case."""
        self.begin_counting(account)
        self.mapped = self.sources(account)
        for subject in self.mapped:
            self.add((subject, None, None), 1)
        lines: list = [b"LS+ " + subject + b"\r\n" for subject in always]
        self.conn.queue(self.lines() + b"".join(lines))

    def remap(self, account: Account) -> None:
        """The account may have other subject mappings."""
        fresh: frozenset = self.sources(account)
        old: frozenset = self.mapped
        self.mapped = fresh
        for subject in fresh - old:
            if self.add((subject, None, None), 1):
                self.send_key((subject, None, None))
        for subject in old - fresh:
            self.subtract((subject, None, None), 1)

    @cython.cfunc
    def sources(self, account: Account) -> frozenset:
        """Sources of the account's mappings that the peer may know of."""
        if account.mappings is None:
            return frozenset()
        return frozenset(
            [each for each in account.mappings.sources if self.principal.may_be_asked(each)]
        )

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def concerns(self, sink: Sink) -> cython.bint:
        """Whether the peer is to know of a sink."""
        owner: LeafConn
        conn: LeafConn = self.conn
        if sink.owner is conn or isinstance(sink, (AnswerWatch, RequestWatch)):
            return False
        if conn.spoke and sink.interim:
            return False
        loop: cython.bint = sink.subject.startswith(LOOP_PREFIX)
        if sink.remote and sink.owner.kind == KIND_LEAF:
            owner = cython.cast(LeafConn, sink.owner)
            if self.isolated or (conn.cluster and owner.cluster == conn.cluster):
                return False
            if conn.spoke and owner.spoke and not loop:
                return False
        elif sink.remote:
            origin: bytes = cython.cast(RemoteSub, sink).origin
            if origin is not None and (self.isolated or origin == conn.cluster):
                return False
            if conn.spoke:
                return False
        return self.principal.may_be_asked(sink.subject)

    def send_key(self, key: tuple) -> None:
        """Queue a line."""
        self.conn.queue(self.line(key))
