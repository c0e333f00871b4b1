"""What an account wants, counted by subject and queue group, for links that tell their peers.

Plain interest is told when it begins and when it ends, queue groups with every change of their
weight, as `<letter>S+` and `<letter>S-` lines (NATS leaf and route protocols).
"""

import cython
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.kernel.kernel import Sink


@cython.cclass
class InterestCounts:
    """The counts of one account. A watcher of it.

    `letter` begins the verbs, `lead` stands before the subject: an account's name, or nothing. A
    kind of link says which sinks its peers are to know of (`concerns`), and sends the lines
    (`send_key`).
    """

    def __init__(self, letter: bytes, lead: bytes):
        self.counts = {}
        self.more = letter + b"S+ " + lead
        self.less = letter + b"S- " + lead

    @property
    def subjects(self) -> list:
        """Subjects, queues and origins announced now."""
        return list(self.counts)

    def interest_added(self, sink: Sink) -> None:
        """The account gained a sink."""
        if not self.concerns(sink):
            return
        key: tuple = (sink.subject, sink.queue, self.origin_of(sink))
        if self.add(key, sink.weight) or sink.queue is not None:
            self.send_key(key)

    def interest_removed(self, sink: Sink) -> None:
        """The account lost a sink."""
        key: tuple = (sink.subject, sink.queue, self.origin_of(sink))
        if key in self.counts and self.concerns(sink):
            self.subtract(key, sink.weight)

    def send_key(self, key: tuple) -> None:
        """Tell every peer how one key stands; for a kind of link to say how."""

    def lines(self) -> bytes:
        """Everything, for a link that has just come up."""
        return b"".join([self.line(key) for key in self.counts])

    @cython.cfunc
    def begin_counting(self, account: Account):
        """Count what is there, and be told of changes. Nothing is sent."""
        for item in account.trie.everything():
            sink = cython.cast(Sink, item)
            if self.concerns(sink):
                self.add((sink.subject, sink.queue, self.origin_of(sink)), sink.weight)
        account.add_watcher(self)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def concerns(self, sink: Sink) -> cython.bint:
        """Whether peers are to know of a sink."""
        return True

    @cython.cfunc
    def origin_of(self, sink: Sink) -> bytes:
        """The cluster that peers have to know a sink stands for; None for none."""
        return None

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add(self, key: tuple, weight: cython.int) -> cython.bint:
        """Count a sink; whether it is the first of its key."""
        first: cython.bint = key not in self.counts
        self.counts[key] = self.counts.get(key, 0) + (1 if key[1] is None else weight)
        return first

    @cython.cfunc
    def subtract(self, key: tuple, weight: cython.int):
        """Count a sink less, and tell what peers must know of that."""
        queue = key[1]
        self.counts[key] -= 1 if queue is None else weight
        gone: bool = self.counts[key] <= 0
        if gone or queue is not None:
            self.send_key(key)
        if gone:
            del self.counts[key]

    @cython.cfunc
    def line(self, key: tuple) -> bytes:
        """The line for one key as it stands."""
        subject, queue, _ = key
        weight = self.counts[key]
        if weight <= 0:
            group: bytes = b"" if queue is None else b" " + queue
            return b"%s%s%s\r\n" % (self.less, subject, group)
        if queue is None:
            return b"%s%s\r\n" % (self.more, subject)
        return b"%s%s %s %d\r\n" % (self.more, subject, queue, weight)
