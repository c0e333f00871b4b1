"""Which messages a stream holds: one 40-byte entry per sequence, in pages, linked by subject.

Pages of 128 entries (5 KiB) hang on a table that is indexed by sequence, so looking up is
arithmetic, a gap of skipped sequences costs sixteen bytes per page, and pages go away with the
messages. The messages of one subject form a doubly linked list of distances, so that a subject's
first, last and next message need no search. It knows nothing of files or memory: `location` is
opaque.
"""

import cython
from cython.cimports.libc.stdlib import calloc, free, realloc
from cython.cimports.libc.string import memmove, memset

# A gap that needs more table than this (in pages) is refused: 2**33 skipped sequences.
PAGE_TABLE_MAX = cython.declare(cython.ulonglong, 1 << 26)
# Pages at the front that wait to be cut off the table together.
SPARE_FRONT = cython.declare(cython.Py_ssize_t, 64)


@cython.cclass
class MessageIndex:
    """The entries and subjects of one stream. See index.pxd for the fields."""

    def __cinit__(self):
        self.names = SubjectTable()
        self.first_seq = 1

    def __dealloc__(self):
        i: cython.Py_ssize_t
        for i in range(self.page_count):
            free(self.pages[i].entries)
        free(self.pages)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def entry(self, sequence: cython.ulonglong) -> cython.pointer(IndexEntry):
        """The entry of a sequence, alive or not; NULL when its page is not there."""
        number: cython.ulonglong = sequence >> PAGE_SHIFT
        entries: cython.pointer(IndexEntry)
        if number < self.page_base or number - self.page_base >= cython.cast(
            cython.ulonglong, self.page_count
        ):
            return cython.NULL
        entries = self.pages[number - self.page_base].entries
        if entries == cython.NULL:
            return cython.NULL
        return cython.address(entries[sequence & (PAGE_ENTRIES - 1)])

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def at(self, sequence: cython.ulonglong) -> cython.pointer(IndexEntry):
        """The entry of a stored message; NULL when there is none."""
        entry: cython.pointer(IndexEntry) = self.entry(sequence)
        if entry != cython.NULL and entry.subject == 0:
            return cython.NULL
        return entry

    @cython.cfunc
    def prepare(self, sequence: cython.ulonglong) -> cython.pointer(IndexEntry):
        """The empty entry of a sequence, with its page made when absent. Raises MemoryError."""
        number: cython.ulonglong = sequence >> PAGE_SHIFT
        entry: cython.pointer(IndexEntry) = self.entry(sequence)
        i: cython.ulonglong
        capacity: cython.Py_ssize_t
        grown: cython.p_void
        if entry != cython.NULL:
            return entry
        if self.page_count == 0:
            self.page_base = number
        if number < self.page_base or number - self.page_base >= PAGE_TABLE_MAX:
            raise MemoryError(f"sequence {sequence} is out of the range of this stream's index")
        i = number - self.page_base
        if i >= cython.cast(cython.ulonglong, self.page_capacity):
            capacity = max(cython.cast(cython.Py_ssize_t, i) + 1, self.page_capacity * 2, 4)
            grown = realloc(self.pages, capacity * cython.sizeof(Page))
            if grown == cython.NULL:
                raise MemoryError
            self.pages = cython.cast(cython.pointer(Page), grown)
            self.page_capacity = capacity
        if i >= cython.cast(cython.ulonglong, self.page_count):
            memset(
                self.pages + self.page_count,
                0,
                (cython.cast(cython.Py_ssize_t, i) + 1 - self.page_count) * cython.sizeof(Page),
            )
            self.page_count = cython.cast(cython.Py_ssize_t, i) + 1
        grown = calloc(PAGE_ENTRIES, cython.sizeof(IndexEntry))
        if grown == cython.NULL:
            raise MemoryError
        self.pages[i].entries = cython.cast(cython.pointer(IndexEntry), grown)
        return self.entry(sequence)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def cost(self, subject: cython.uint, entry: cython.pointer(IndexEntry)) -> cython.ulonglong:
        """Bytes that a message counts, by the formula of nats-server's store of the same kind."""
        total: cython.ulonglong = self.overhead
        total += entry.size
        total += self.names.items[subject].size
        if entry.header_len:
            total += self.header_overhead
        return total

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add(
        self, sequence: cython.ulonglong, subject: cython.uint, entry: cython.pointer(IndexEntry)
    ) -> cython.int:
        """Enter a message. `entry` is what `prepare(sequence)` gave, with location, timestamp,
        size, header_len and flags set; `sequence` is greater than every one stored before."""
        s: cython.pointer(Subject) = cython.address(self.names.items[subject])
        before: cython.pointer(IndexEntry)
        distance: cython.ulonglong
        entry.subject = subject
        entry.next = 0
        entry.prev = 0
        if s.count:
            distance = sequence - s.last
            entry.prev = cython.cast(cython.uint, distance) if distance < FAR else FAR
            before = self.entry(s.last)
            before.next = entry.prev
        else:
            s.first = sequence
        s.last = sequence
        s.count += 1
        self.pages[(sequence >> PAGE_SHIFT) - self.page_base].alive += 1
        if self.messages == 0:
            self.first_seq = sequence
            self.first_ts = entry.timestamp
        self.messages += 1
        self.bytes += self.cost(subject, entry)
        self.last_seq = sequence
        self.last_ts = entry.timestamp
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def drop(self, sequence: cython.ulonglong) -> cython.int:
        """Take a message out; 1 when it was there. `first_seq` moves when it was the first."""
        entry: cython.pointer(IndexEntry) = self.at(sequence)
        other: cython.pointer(IndexEntry)
        s: cython.pointer(Subject)
        before: cython.ulonglong
        after: cython.ulonglong
        page: cython.pointer(Page)
        if entry == cython.NULL:
            return 0
        s = cython.address(self.names.items[entry.subject])
        before = self.precede(sequence, entry)
        after = self.follow(sequence, entry)
        if before:
            other = self.entry(before)
            other.next = 0
            if after:
                other.next = (
                    cython.cast(cython.uint, after - before) if after - before < FAR else FAR
                )
        else:
            s.first = after
        if after:
            other = self.entry(after)
            other.prev = 0
            if before:
                other.prev = (
                    cython.cast(cython.uint, after - before) if after - before < FAR else FAR
                )
        else:
            s.last = before
        s.count -= 1
        self.messages -= 1
        self.bytes -= self.cost(entry.subject, entry)
        if s.count == 0:
            self.names.free_number(entry.subject)
        entry.subject = 0
        page = cython.address(self.pages[(sequence >> PAGE_SHIFT) - self.page_base])
        page.alive -= 1
        if page.alive == 0 and (self.last_seq >> PAGE_SHIFT) != (sequence >> PAGE_SHIFT):
            free(page.entries)
            page.entries = cython.NULL
        if sequence == self.first_seq:
            self.move_first(sequence + 1)
        return 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def move_first(self, sequence: cython.ulonglong) -> cython.int:
        """Set `first_seq` to the first message at or after `sequence`; nothing is before it."""
        entry: cython.pointer(IndexEntry)
        first: cython.ulonglong = self.next_alive(sequence)
        if first:
            entry = self.entry(first)
            self.first_seq = first
            self.first_ts = entry.timestamp
        else:
            self.first_seq = self.last_seq + 1
            self.first_ts = 0
        self.free_pages()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def free_pages(self) -> cython.int:
        """Free pages that lie wholly before `first_seq`, and cut them off the table in bulk."""
        front: cython.ulonglong = self.first_seq >> PAGE_SHIFT
        gone: cython.Py_ssize_t
        i: cython.Py_ssize_t
        if front <= self.page_base or self.page_count == 0:
            return 0
        gone = self.page_count
        if front - self.page_base < cython.cast(cython.ulonglong, gone):
            gone = cython.cast(cython.Py_ssize_t, front - self.page_base)
        i = gone - 1
        while i >= 0 and self.pages[i].entries != cython.NULL:
            free(self.pages[i].entries)
            self.pages[i].entries = cython.NULL
            self.pages[i].alive = 0
            i -= 1
        if gone == self.page_count or (gone >= SPARE_FRONT and gone * 2 >= self.page_count):
            for i in range(gone):
                free(self.pages[i].entries)
            memmove(self.pages, self.pages + gone, (self.page_count - gone) * cython.sizeof(Page))
            self.page_count -= gone
            self.page_base += gone
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def clear(self, first: cython.ulonglong) -> cython.int:
        """Take every message out; the next one gets sequence `first`."""
        i: cython.Py_ssize_t
        for i in range(self.page_count):
            free(self.pages[i].entries)
        self.page_count = 0
        self.names.clear()
        self.messages = 0
        self.bytes = 0
        self.first_seq = first
        self.last_seq = first - 1
        self.first_ts = 0
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def next_alive(self, start: cython.ulonglong) -> cython.ulonglong:
        """First stored sequence at or after `start`; 0 when there is none."""
        number: cython.ulonglong
        end: cython.ulonglong
        page: cython.pointer(Page)
        if start < self.first_seq:
            start = self.first_seq
        while start <= self.last_seq:
            number = start >> PAGE_SHIFT
            if number < self.page_base:
                start = self.page_base << PAGE_SHIFT
                continue
            if number - self.page_base >= cython.cast(cython.ulonglong, self.page_count):
                return 0
            page = cython.address(self.pages[number - self.page_base])
            end = (number + 1) << PAGE_SHIFT
            if page.alive:
                while start < end:
                    if page.entries[start & (PAGE_ENTRIES - 1)].subject:
                        return start
                    start += 1
            start = end
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def prev_alive(self, start: cython.ulonglong) -> cython.ulonglong:
        """Last stored sequence at or before `start`; 0 when there is none."""
        number: cython.ulonglong
        page: cython.pointer(Page)
        if start > self.last_seq:
            start = self.last_seq
        while start >= self.first_seq and start:
            number = start >> PAGE_SHIFT
            if number < self.page_base:
                return 0
            if number - self.page_base < cython.cast(cython.ulonglong, self.page_count):
                page = cython.address(self.pages[number - self.page_base])
                if page.alive:
                    while (start >> PAGE_SHIFT) == number and start:
                        if page.entries[start & (PAGE_ENTRIES - 1)].subject:
                            return start
                        start -= 1
                    continue
            start = (number << PAGE_SHIFT) - 1 if number else 0
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def count_alive(self, start: cython.ulonglong, end: cython.ulonglong) -> cython.ulonglong:
        """Stored messages from `start` to `end`, both included."""
        total: cython.ulonglong = 0
        number: cython.ulonglong
        stop: cython.ulonglong
        page: cython.pointer(Page)
        if start < self.first_seq:
            start = self.first_seq
        if end > self.last_seq:
            end = self.last_seq
        if start > end or self.messages == 0:
            return 0
        if start == self.first_seq and end == self.last_seq:
            return self.messages
        if self.messages == self.last_seq - self.first_seq + 1:
            return end - start + 1
        while start <= end:
            number = start >> PAGE_SHIFT
            stop = ((number + 1) << PAGE_SHIFT) - 1
            if number - self.page_base >= cython.cast(cython.ulonglong, self.page_count):
                break
            page = cython.address(self.pages[number - self.page_base])
            if page.alive:
                if stop <= end and (start & (PAGE_ENTRIES - 1)) == 0:
                    total += page.alive
                else:
                    if stop > end:
                        stop = end
                    while start <= stop:
                        if page.entries[start & (PAGE_ENTRIES - 1)].subject:
                            total += 1
                        start += 1
            start = stop + 1
        return total

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def scan_next(self, subject: cython.uint, start: cython.ulonglong) -> cython.ulonglong:
        """First sequence at or after `start` of a subject, found by looking at every entry."""
        end: cython.ulonglong
        number: cython.ulonglong
        entries: cython.pointer(IndexEntry)
        if start < self.first_seq:
            start = self.first_seq
        while start <= self.last_seq:
            number = start >> PAGE_SHIFT
            end = (number + 1) << PAGE_SHIFT
            if number - self.page_base < cython.cast(cython.ulonglong, self.page_count):
                entries = self.pages[number - self.page_base].entries
                if entries != cython.NULL:
                    while start < end:
                        if entries[start & (PAGE_ENTRIES - 1)].subject == subject:
                            return start
                        start += 1
            start = end
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def scan_prev(self, subject: cython.uint, start: cython.ulonglong) -> cython.ulonglong:
        """Last sequence at or before `start` of a subject, found by looking at every entry."""
        while True:
            start = self.prev_alive(start)
            if start == 0 or self.entry(start).subject == subject:
                return start
            start -= 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def follow(
        self, sequence: cython.ulonglong, entry: cython.pointer(IndexEntry)
    ) -> cython.ulonglong:
        """Next sequence of the same subject; 0 at the end."""
        if entry.next == FAR:
            return self.scan_next(entry.subject, sequence + 1)
        return sequence + entry.next if entry.next else 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def precede(
        self, sequence: cython.ulonglong, entry: cython.pointer(IndexEntry)
    ) -> cython.ulonglong:
        """Sequence of the same subject before this one; 0 at the start."""
        if entry.prev == FAR:
            return self.scan_prev(entry.subject, sequence - 1)
        return sequence - entry.prev if entry.prev else 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def at_time(self, timestamp: cython.longlong) -> cython.ulonglong:
        """First stored sequence whose timestamp is not before `timestamp`; 0 when all are."""
        low: cython.ulonglong = self.first_seq
        high: cython.ulonglong = self.last_seq + 1
        middle: cython.ulonglong
        probe: cython.ulonglong
        while low < high:
            middle = low + (high - low) // 2
            probe = self.next_alive(middle)
            if probe == 0 or probe >= high or self.entry(probe).timestamp >= timestamp:
                high = middle
            else:
                low = probe + 1
        return self.next_alive(low)
