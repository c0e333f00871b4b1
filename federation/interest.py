"""What this node wants from the peer of one leaf link, kept true by LS+ and LS- lines.

Plain interest is told when it begins and when it ends, queue groups with every change of their
weight (NATS leaf node protocol). The sources of the account's subject mappings are interest, too:
what comes on them goes on to subjects that somebody may want. A spoke speaks for itself and for the
spokes behind it; a hub speaks for everybody but the peer and its cluster.
"""

import cython
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.broker.core import KIND_LEAF, Sink
from cython.cimports.headwater.edge.subjects.trie import Node
from cython.cimports.headwater.federation.leaf_conn import LeafConn
from cython.cimports.headwater.federation.rules import Rules

LOOP_PREFIX = b"$LDS."


@cython.cfunc
def walk(node: Node, found: list):
    """Collect every sink at and below `node`."""
    found.extend(node.plain)
    if node.queues:
        for members in node.queues.values():
            found.extend(members)
    if node.star is not None:
        walk(node.star, found)
    if node.tail is not None:
        walk(node.tail, found)
    for child in node.children.values():
        walk(cython.cast(Node, child), found)


@cython.cclass
class Interest:
    """The account's interest as its peer knows it. A watcher of the account."""

    conn: LeafConn
    rules: Rules
    isolated: cython.bint
    counts: dict
    mapped: frozenset

    def __init__(self, conn: LeafConn, rules: Rules, isolated: bool):
        self.conn = conn
        self.rules = rules
        self.isolated = isolated
        self.counts = {}
        self.mapped = frozenset()

    def begin(self, account: Account, always: list) -> None:
        """Tell the peer everything at once, with the subjects of `always` in any case."""
        sinks: list = []
        walk(account.trie.root, sinks)
        for item in sinks:
            if self.concerns(cython.cast(Sink, item)):
                self.count(cython.cast(Sink, item))
        self.mapped = self.sources(account)
        for subject in self.mapped:
            self.count(Sink(subject))
        lines: list = [line(key, count) for key, count in self.counts.items()]
        lines.extend([b"LS+ " + subject for subject in always])
        self.conn.queue(b"".join([text + b"\r\n" for text in lines]))
        account.add_watcher(self)

    def interest_added(self, sink: Sink) -> None:
        """The account gained a sink."""
        if self.concerns(sink):
            key = (sink.subject, sink.queue)
            if self.count(sink) or sink.queue is not None:
                self.tell(key)

    def interest_removed(self, sink: Sink) -> None:
        """The account lost a sink."""
        key = (sink.subject, sink.queue)
        if key in self.counts and self.concerns(sink):
            self.uncount(key, sink.weight if sink.queue is not None else 1)

    @cython.cfunc
    def uncount(self, key: tuple, less: cython.int):
        """Take sinks away, and tell the peer what it must know of that."""
        self.counts[key] -= less
        gone: bool = self.counts[key] <= 0
        if gone or key[1] is not None:
            self.tell(key)
        if gone:
            del self.counts[key]

    def remap(self, account: Account) -> None:
        """The account may have other subject mappings."""
        fresh: frozenset = self.sources(account)
        old: frozenset = self.mapped
        self.mapped = fresh
        for subject in fresh - old:
            if self.count(Sink(subject)):
                self.tell((subject, None))
        for subject in old - fresh:
            self.uncount((subject, None), 1)

    @cython.cfunc
    def sources(self, account: Account) -> frozenset:
        """Sources of the account's mappings that the peer may know of."""
        if account.mappings is None:
            return frozenset()
        return frozenset(
            [each for each in account.mappings.sources if self.rules.permits_interest(each)]
        )

    @property
    def subjects(self) -> list:
        """Subjects and queues announced now."""
        return list(self.counts)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def count(self, sink: Sink) -> cython.int:
        """Add a sink; 1 when it is the first of its key."""
        key = (sink.subject, sink.queue)
        first: cython.bint = key not in self.counts
        more: cython.int = sink.weight if sink.queue is not None else 1
        self.counts[key] = self.counts.get(key, 0) + more
        return 1 if first else 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def concerns(self, sink: Sink) -> cython.bint:
        """Whether the peer is to know of a sink."""
        owner: LeafConn
        conn: LeafConn = self.conn
        if sink.owner is conn:
            return False
        loop: cython.bint = sink.subject.startswith(LOOP_PREFIX)
        if sink.remote and sink.owner.kind == KIND_LEAF:
            owner = cython.cast(LeafConn, sink.owner)
            if self.isolated or (conn.cluster and owner.cluster == conn.cluster):
                return False
            if conn.spoke and owner.spoke and not loop:
                return False
        return loop or self.rules.permits_interest(sink.subject)

    def tell(self, key: tuple) -> None:
        """Queue the line for one key as it stands."""
        self.conn.queue(line(key, self.counts[key]) + b"\r\n")


def line(key: tuple, count: int) -> bytes:
    """The LS+ or LS- line for a subject and queue that `count` sinks want."""
    subject, queue = key
    if count <= 0:
        return b"LS- " + subject + (b"" if queue is None else b" " + queue)
    if queue is None:
        return b"LS+ " + subject
    return b"LS+ %s %s %d" % (subject, queue, count)
