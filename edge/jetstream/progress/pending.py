"""Messages delivered and not yet acknowledged: a compact table in order of stream sequence.

Entries are added at the end (deliveries of new messages go upwards), found in constant time when
the sequences have no gaps and by bisection otherwise, and dropped by a mark; the room of dropped
entries is taken back when the table is full. The table also holds the queue of what has to be
delivered again. Its size is bounded by the consumer's `max_ack_pending`.
"""

import cython
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.libc.string import memmove

INITIAL = cython.declare(cython.Py_ssize_t, 64)
# An empty table larger than this gives its memory back.
KEPT = cython.declare(cython.Py_ssize_t, 4096)


@cython.cclass
class PendingTable:
    """The pending acks of one consumer. Pointers to entries hold until the next `add`."""

    def __cinit__(self):
        self.items = cython.NULL
        self.queue = cython.NULL

    def __dealloc__(self):
        free(self.items)
        free(self.queue)

    def __len__(self) -> int:
        return self.count

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def lower_bound(self, sequence: cython.ulonglong) -> cython.Py_ssize_t:
        """Index of the first entry, dropped ones included, with this sequence or a higher one."""
        low: cython.Py_ssize_t = self.head
        high: cython.Py_ssize_t = self.end
        middle: cython.Py_ssize_t
        while low < high:
            middle = (low + high) >> 1
            if self.items[middle].sequence < sequence:
                low = middle + 1
            else:
                high = middle
        return low

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def find(self, sequence: cython.ulonglong) -> cython.pointer(PendingEntry):
        """The entry that is alive with this sequence, or NULL."""
        at: cython.Py_ssize_t
        base: cython.ulonglong
        if self.count == 0:
            return cython.NULL
        base = self.items[self.head].sequence
        if sequence < base or sequence > self.items[self.end - 1].sequence:
            return cython.NULL
        at = self.end
        if sequence - base < cython.cast(cython.ulonglong, self.end - self.head):
            at = self.head + cython.cast(cython.Py_ssize_t, sequence - base)
        if at >= self.end or self.items[at].sequence != sequence:
            at = self.lower_bound(sequence)
        if self.items[at].sequence != sequence or not self.items[at].flags & ENTRY_ALIVE:
            return cython.NULL
        return cython.address(self.items[at])

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def first(self) -> cython.pointer(PendingEntry):
        """The entry that is alive with the lowest sequence, or NULL."""
        if self.count == 0:
            return cython.NULL
        return cython.address(self.items[self.head])

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add(
        self,
        sequence: cython.ulonglong,
        consumer_seq: cython.ulonglong,
        since: cython.longlong,
        deliveries: cython.uint,
    ) -> cython.int:
        """Enter a delivery; one that is already there is overwritten."""
        at: cython.Py_ssize_t
        entry: cython.pointer(PendingEntry) = self.find(sequence)
        if entry != cython.NULL:
            self.drop(entry)
        if self.end == self.capacity:
            self.make_room()
        at = self.end
        if self.end > self.head and self.items[self.end - 1].sequence >= sequence:
            at = self.lower_bound(sequence)
            if self.items[at].sequence != sequence:
                memmove(
                    cython.address(self.items[at + 1]),
                    cython.address(self.items[at]),
                    (self.end - at) * cython.sizeof(PendingEntry),
                )
                self.end += 1
        else:
            self.end += 1
        entry = cython.address(self.items[at])
        entry.sequence = sequence
        entry.consumer_seq = consumer_seq
        entry.since = since
        entry.deliveries = deliveries
        entry.flags = ENTRY_ALIVE
        self.count += 1
        if deliveries > 1:
            self.redelivered += 1
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def make_room(self) -> cython.int:
        """Squeeze dropped entries out, or grow when there are few."""
        i: cython.Py_ssize_t
        kept: cython.Py_ssize_t = 0
        grown: cython.pointer(PendingEntry)
        capacity: cython.Py_ssize_t
        for i in range(self.head, self.end):
            if self.items[i].flags & ENTRY_ALIVE:
                self.items[kept] = self.items[i]
                kept += 1
        self.head = 0
        self.end = kept
        if kept * 2 > self.capacity or self.capacity == 0:
            capacity = max(INITIAL, self.capacity * 2)
            grown = cython.cast(
                cython.pointer(PendingEntry),
                realloc(self.items, capacity * cython.sizeof(PendingEntry)),
            )
            if grown == cython.NULL:
                raise MemoryError
            self.items = grown
            self.capacity = capacity
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def drop(self, entry: cython.pointer(PendingEntry)) -> cython.int:
        """Take out an entry that is alive."""
        if entry.flags & ENTRY_QUEUED:
            self.queued -= 1
        if entry.deliveries > 1:
            self.redelivered -= 1
        entry.flags = 0
        self.count -= 1
        if self.count == 0:
            self.clear()
            return 0
        while not self.items[self.head].flags & ENTRY_ALIVE:
            self.head += 1
        while not self.items[self.end - 1].flags & ENTRY_ALIVE:
            self.end -= 1
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def requeue(self, entry: cython.pointer(PendingEntry)) -> cython.int:
        """Queue an entry for another delivery, unless it is queued already."""
        used: cython.Py_ssize_t
        capacity: cython.Py_ssize_t
        grown: cython.pointer(cython.ulonglong)
        if entry.flags & ENTRY_QUEUED:
            return 0
        if self.queue_end == self.queue_capacity:
            used = self.queue_end - self.queue_head
            if self.queue_head > 0:
                memmove(
                    self.queue,
                    self.queue + self.queue_head,
                    used * cython.sizeof(cython.ulonglong),
                )
                self.queue_head = 0
                self.queue_end = used
            if used * 2 > self.queue_capacity or self.queue_capacity == 0:
                capacity = max(INITIAL, self.queue_capacity * 2)
                grown = cython.cast(
                    cython.pointer(cython.ulonglong),
                    realloc(self.queue, capacity * cython.sizeof(cython.ulonglong)),
                )
                if grown == cython.NULL:
                    raise MemoryError
                self.queue = grown
                self.queue_capacity = capacity
        self.queue[self.queue_end] = entry.sequence
        self.queue_end += 1
        entry.flags |= ENTRY_QUEUED
        self.queued += 1
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def unqueue(self, entry: cython.pointer(PendingEntry)) -> cython.int:
        """Take the wish for another delivery back; its place in the queue goes with it. What is
        delivered stands first, so nothing is searched then."""
        i: cython.Py_ssize_t
        if not entry.flags & ENTRY_QUEUED:
            return 0
        entry.flags &= ~ENTRY_QUEUED
        self.queued -= 1
        for i in range(self.queue_head, self.queue_end):
            if self.queue[i] == entry.sequence:
                self.queue[i] = 0
                break
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def next_queued(self) -> cython.pointer(PendingEntry):
        """The entry that is to be delivered again first, still queued; NULL without one."""
        entry: cython.pointer(PendingEntry)
        while self.queued > 0 and self.queue_head < self.queue_end:
            entry = self.find(self.queue[self.queue_head])
            if entry != cython.NULL and entry.flags & ENTRY_QUEUED:
                return entry
            self.queue_head += 1
        self.queue_head = self.queue_end = 0
        return cython.NULL

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def clear(self) -> cython.int:
        """Forget everything."""
        self.head = self.end = 0
        self.count = self.redelivered = self.queued = 0
        self.queue_head = self.queue_end = 0
        if self.capacity > KEPT:
            free(self.items)
            self.items = cython.NULL
            self.capacity = 0
        if self.queue_capacity > KEPT:
            free(self.queue)
            self.queue = cython.NULL
            self.queue_capacity = 0
        return 0

    def entries(self) -> list[tuple[int, int, int, bool]]:
        """(sequence, consumer sequence, deliveries, queued) of all entries, for tests and tools."""
        i: cython.Py_ssize_t
        found: list = []
        for i in range(self.head, self.end):
            if self.items[i].flags & ENTRY_ALIVE:
                found.append(
                    (
                        self.items[i].sequence,
                        self.items[i].consumer_seq,
                        self.items[i].deliveries,
                        bool(self.items[i].flags & ENTRY_QUEUED),
                    )
                )
        return found

    def deliveries(self, sequence: int) -> int:
        """How often a message was delivered that is not acknowledged; 0 for any other one."""
        entry: cython.pointer(PendingEntry) = self.find(sequence)
        return 0 if entry == cython.NULL else entry.deliveries

    def put(self, sequence: int, consumer_seq: int, since: int, deliveries: int) -> None:
        """`add` for interpreted callers."""
        self.add(sequence, consumer_seq, since, deliveries)

    def pop(self, sequence: int) -> bool:
        """`find` and `drop` for interpreted callers; whether it was there."""
        entry: cython.pointer(PendingEntry) = self.find(sequence)
        if entry == cython.NULL:
            return False
        self.drop(entry)
        return True

    def again(self, sequence: int) -> bool:
        """`find` and `requeue` for interpreted callers; whether it was there."""
        entry: cython.pointer(PendingEntry) = self.find(sequence)
        if entry == cython.NULL:
            return False
        self.requeue(entry)
        return True

    def pop_queued(self) -> int:
        """Sequence to deliver again next, no longer queued; 0 without one."""
        entry: cython.pointer(PendingEntry) = self.next_queued()
        if entry == cython.NULL:
            return 0
        self.unqueue(entry)
        return entry.sequence
