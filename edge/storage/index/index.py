"""Which messages a stream holds: one 40-byte entry per sequence, in pages, linked by subject.

Pages of 256 entries (10 KiB) hang on a table that is indexed by sequence, so looking up is
arithmetic, a gap of skipped sequences costs 24 bytes per page, and pages go away with the
messages. It knows nothing of files or memory: `location` is opaque.

Of each subject the first and the last message are known. An entry says how far away its neighbours
on the subject are at least: exactly in an open page as a rule, in pages or not at all in a packed
one. From there on they are looked for, which costs some nanoseconds for a packed page. So nothing
has to be kept up where a message goes away between two others.

A page is open, or packed (`packed_page`): reading needs no open page, writing does. A store that
packs keeps the pages open that were opened last, more of them while old ones are written again
and again. Packed pages lie on the heap, and the oldest ones beyond some bytes in a mapped file
(`page_spill`).
"""

import cython
from cython.cimports.headwater.edge.storage.index.packed_page import (
    PackedPage,
    bits_between,
    find_subject,
    find_subject_back,
    hint_next,
    next_bit,
    packed_bytes,
    unpack_entry,
    unpack_page,
)
from cython.cimports.headwater.edge.storage.index.page_packing import pack_page
from cython.cimports.libc.stdlib import calloc, free, realloc
from cython.cimports.libc.string import memmove, memset

# A gap that needs more table than this (in pages) is refused: 2**33 skipped sequences.
PAGE_TABLE_MAX = cython.declare(cython.ulonglong, 1 << 26)
# Pages at the front that wait to be cut off the table together.
SPARE_FRONT = cython.declare(cython.Py_ssize_t, 64)
# Open pages of a stream that is only appended to and read, and of any stream that packs.
OPEN_LEAST = cython.declare(cython.Py_ssize_t, 128)
OPEN_MOST = cython.declare(cython.Py_ssize_t, 1024)
# Pages that are looked at when one more is opened by an append; those that the log still writes
# about stay.
PACK_STEP = cython.declare(cython.int, 4)
# Pages that leave the heap behind one that was packed, and those that are looked at for it.
SPILL_STEP = cython.declare(cython.int, 8)
SPILL_LOOKS = cython.declare(cython.int, 64)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def far_at_most(distance: cython.ulonglong) -> cython.uint:
    """A distance as an entry says it."""
    return FAR if distance > FAR else cython.cast(cython.uint, distance)


@cython.no_gc_clear
@cython.cclass
class MessageIndex:
    """The entries and subjects of one stream. See index.pxd for the fields."""

    def __cinit__(self):
        self.names = SubjectTable()
        self.first_seq = 1
        self.open_least = self.open_wanted = OPEN_LEAST

    def __dealloc__(self):
        i: cython.Py_ssize_t
        for i in range(self.page_count):
            self.free_page(i)
        free(self.pages)
        free(self.open_pages)

    def index_bytes(self) -> int:
        """Memory of the entries, subjects and what is in files not counted."""
        total: cython.ulonglong = self.page_capacity * cython.sizeof(Page)
        i: cython.Py_ssize_t
        for i in range(self.page_count):
            if self.pages[i].entries != cython.NULL:
                total += PAGE_ENTRIES * cython.sizeof(IndexEntry)
            elif self.pages[i].packed != cython.NULL and not self.pages[i].spilled:
                total += packed_bytes(self.pages[i].packed)
        return total

    @cython.cfunc
    @cython.exceptval(check=False)
    def free_page(self, i: cython.Py_ssize_t) -> cython.int:
        """Give a page's entries back."""
        free(self.pages[i].entries)
        self.pages[i].entries = cython.NULL
        self.free_packed(cython.address(self.pages[i]))
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def free_packed(self, page: cython.pointer(Page)) -> cython.int:
        """Give back what a page has packed, if anything."""
        if page.packed == cython.NULL:
            return 0
        if page.spilled:
            self.spill.drop(page.spilled - 1)
            page.spilled = 0
        else:
            if self.spill is not None:
                self.spill.kept -= packed_bytes(page.packed)
            free(page.packed)
        page.packed = cython.NULL
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def keep_packed(self, page: cython.pointer(Page), number: cython.ulonglong) -> cython.int:
        """A page was packed: if too much is on the heap now, old ones leave it."""
        if self.spill is None:
            return 0
        self.spill.kept += packed_bytes(page.packed)
        self.unspilled = min(self.unspilled, number)
        if self.spill.kept > self.spill.most:
            self.spill_some()
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def spill_some(self) -> cython.int:
        """Have the oldest packed pages leave the heap, some at a time."""
        page: cython.pointer(Page)
        place: cython.pointer(PackedPage)
        size: cython.Py_ssize_t
        moves: cython.int = SPILL_STEP
        looks: cython.int = SPILL_LOOKS
        number: cython.ulonglong = max(self.unspilled, self.page_base)
        end: cython.ulonglong = self.page_base + self.page_count
        while number < end and moves and looks and self.spill.kept > self.spill.most:
            looks -= 1
            page = cython.address(self.pages[number - self.page_base])
            if page.packed != cython.NULL and not page.spilled:
                size = packed_bytes(page.packed)
                place = self.spill.put(page.packed, size)
                if place == cython.NULL:
                    break
                free(page.packed)
                page.packed = place
                page.spilled = self.spill.number + 1
                self.spill.kept -= size
                moves -= 1
            number += 1
        self.unspilled = number
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def entry(self, sequence: cython.ulonglong) -> cython.pointer(cython.const[IndexEntry]):
        """The entry of a sequence, alive or not, for reading; NULL when its page is not there."""
        number: cython.ulonglong = sequence >> PAGE_SHIFT
        page: cython.pointer(Page)
        copy: cython.pointer(IndexEntry)
        if number < self.page_base or number - self.page_base >= cython.cast(
            cython.ulonglong, self.page_count
        ):
            return cython.NULL
        page = cython.address(self.pages[number - self.page_base])
        if page.entries != cython.NULL:
            return cython.address(page.entries[sequence & (PAGE_ENTRIES - 1)])
        if page.packed == cython.NULL:
            return cython.NULL
        copy = cython.address(self.copies[self.next_copy])
        self.next_copy = (self.next_copy + 1) % COPIES
        unpack_entry(
            page.packed, cython.cast(cython.int, sequence & (PAGE_ENTRIES - 1)), copy
        )
        return copy

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def at(self, sequence: cython.ulonglong) -> cython.pointer(cython.const[IndexEntry]):
        """The entry of a stored message, for reading; NULL when there is none."""
        entry: cython.pointer(cython.const[IndexEntry]) = self.entry(sequence)
        if entry != cython.NULL and entry.subject == 0:
            return cython.NULL
        return entry

    @cython.cfunc
    def opened(self, sequence: cython.ulonglong) -> cython.pointer(IndexEntry):
        """The entry of a sequence whose page is there, for writing, until a page is packed.
        Raises MemoryError."""
        page: cython.pointer(Page) = cython.address(
            self.pages[(sequence >> PAGE_SHIFT) - self.page_base]
        )
        grown: cython.p_void
        if page.entries == cython.NULL:
            self.remember_open(sequence >> PAGE_SHIFT)
            grown = calloc(PAGE_ENTRIES, cython.sizeof(IndexEntry))
            if grown == cython.NULL:
                raise MemoryError
            page.entries = cython.cast(cython.pointer(IndexEntry), grown)
            if page.packed != cython.NULL:
                unpack_page(page.packed, page.entries)
                self.free_packed(page)
                if self.open_wanted < OPEN_MOST:
                    self.open_wanted += 1
        return cython.address(page.entries[sequence & (PAGE_ENTRIES - 1)])

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def remember_open(self, number: cython.ulonglong) -> cython.int:
        """A page is about to be opened. Raises MemoryError."""
        capacity: cython.Py_ssize_t
        i: cython.Py_ssize_t
        grown: cython.pointer(cython.ulonglong)
        if not self.packs:
            return 0
        if self.open_count == self.open_capacity:
            capacity = max(self.open_capacity * 2, 8)
            grown = cython.cast(
                cython.pointer(cython.ulonglong),
                calloc(capacity, cython.sizeof(cython.ulonglong)),
            )
            if grown == cython.NULL:
                raise MemoryError
            for i in range(self.open_count):
                grown[i] = self.open_pages[(self.open_first + i) & (self.open_capacity - 1)]
            free(self.open_pages)
            self.open_pages = grown
            self.open_first = 0
            self.open_capacity = capacity
        self.open_pages[(self.open_first + self.open_count) & (self.open_capacity - 1)] = number
        self.open_count += 1
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def pack_some(self) -> cython.int:
        """Pack pages that were opened first, while too many are open. Nobody may hold an entry
        for writing, or one of an open page."""
        number: cython.ulonglong
        page: cython.pointer(Page)
        tries: cython.int = PACK_STEP
        last: cython.int
        while self.open_count > self.open_wanted and tries:
            tries -= 1
            number = self.open_pages[self.open_first]
            self.open_first = (self.open_first + 1) & (self.open_capacity - 1)
            self.open_count -= 1
            if number < self.page_base or number - self.page_base >= cython.cast(
                cython.ulonglong, self.page_count
            ):
                continue
            page = cython.address(self.pages[number - self.page_base])
            if page.entries == cython.NULL:
                continue
            page.packed = cython.NULL
            last = PAGE_ENTRIES - 1
            while last > 0 and page.entries[last].subject == 0:
                last -= 1
            if number != self.last_seq >> PAGE_SHIFT and not page.entries[last].flags & IN_LOG:
                page.packed = pack_page(page.entries)
            if page.packed == cython.NULL:
                self.remember_open(number)
            else:
                free(page.entries)
                page.entries = cython.NULL
                self.keep_packed(page, number)
        return 0

    @cython.cfunc
    def prepare(self, sequence: cython.ulonglong) -> cython.pointer(IndexEntry):
        """The empty entry of a sequence, with its page made when absent. Raises MemoryError."""
        number: cython.ulonglong = sequence >> PAGE_SHIFT
        i: cython.ulonglong
        capacity: cython.Py_ssize_t
        grown: cython.p_void
        if self.entry(sequence) != cython.NULL:
            return self.opened(sequence)
        if self.packs:
            self.open_wanted = max(self.open_wanted - 1, self.open_least)
            self.pack_some()
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
        return self.opened(sequence)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def cost(
        self, subject: cython.uint, entry: cython.pointer(cython.const[IndexEntry])
    ) -> cython.ulonglong:
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
        page: cython.pointer(Page)
        distance: cython.ulonglong
        entry.subject = subject
        entry.next = 0
        entry.prev = 0
        if s.count:
            distance = sequence - s.last
            entry.prev = far_at_most(distance)
            page = cython.address(self.pages[(s.last >> PAGE_SHIFT) - self.page_base])
            if page.entries != cython.NULL:
                page.entries[s.last & (PAGE_ENTRIES - 1)].next = entry.prev
            else:
                hint_next(
                    page.packed,
                    cython.cast(cython.int, s.last & (PAGE_ENTRIES - 1)),
                    (sequence >> PAGE_SHIFT) - (s.last >> PAGE_SHIFT),
                )
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
        entry: cython.pointer(cython.const[IndexEntry]) = self.at(sequence)
        s: cython.pointer(Subject)
        subject: cython.uint
        page: cython.pointer(Page)
        at: cython.ulonglong
        i: cython.int = cython.cast(cython.int, sequence & (PAGE_ENTRIES - 1))
        if entry == cython.NULL:
            return 0
        subject = entry.subject
        s = cython.address(self.names.items[subject])
        self.bytes -= self.cost(subject, entry)
        if s.count == 1:
            s.first = s.last = 0
        elif s.first == sequence:
            s.first = self.follow(sequence, entry)
        elif s.last == sequence:
            s.last = self.precede(sequence, entry)
        elif entry.prev and entry.next:
            self.join(sequence, entry)
        s.count -= 1
        self.messages -= 1
        if s.count == 0:
            self.names.free_number(subject)
        page = cython.address(self.pages[(sequence >> PAGE_SHIFT) - self.page_base])
        if page.entries != cython.NULL:
            page.entries[i].subject = 0
        else:
            page.packed.alive[i >> 6] &= ~(cython.cast(cython.ulonglong, 1) << (i & 63))
        page.alive -= 1
        if page.alive == 0 and (self.last_seq >> PAGE_SHIFT) != (sequence >> PAGE_SHIFT):
            at = (sequence >> PAGE_SHIFT) - self.page_base
            self.free_page(cython.cast(cython.Py_ssize_t, at))
        if sequence == self.first_seq:
            self.move_first(sequence + 1)
        return 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def join(
        self, sequence: cython.ulonglong, entry: cython.pointer(cython.const[IndexEntry])
    ) -> cython.int:
        """Tell the neighbours of a message between them, which goes away, where to look instead;
        only in open pages, which spares them looking there once."""
        distance: cython.ulonglong = cython.cast(cython.ulonglong, entry.prev) + entry.next
        other: cython.pointer(IndexEntry) = self.open_entry(sequence - entry.prev)
        if other != cython.NULL and other.subject == entry.subject:
            other.next = far_at_most(distance)
        other = self.open_entry(sequence + entry.next)
        if other != cython.NULL and other.subject == entry.subject:
            other.prev = far_at_most(distance)
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def open_entry(self, sequence: cython.ulonglong) -> cython.pointer(IndexEntry):
        """The entry of a sequence in an open page; NULL when it is in none."""
        number: cython.ulonglong = sequence >> PAGE_SHIFT
        page: cython.pointer(Page)
        if number < self.page_base or number - self.page_base >= cython.cast(
            cython.ulonglong, self.page_count
        ):
            return cython.NULL
        page = cython.address(self.pages[number - self.page_base])
        if page.entries == cython.NULL:
            return cython.NULL
        return cython.address(page.entries[sequence & (PAGE_ENTRIES - 1)])

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def move_first(self, sequence: cython.ulonglong) -> cython.int:
        """Set `first_seq` to the first message at or after `sequence`; nothing is before it."""
        entry: cython.pointer(cython.const[IndexEntry])
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
        while i >= 0 and (
            self.pages[i].entries != cython.NULL or self.pages[i].packed != cython.NULL
        ):
            self.free_page(i)
            self.pages[i].alive = 0
            i -= 1
        if gone == self.page_count or (gone >= SPARE_FRONT and gone * 2 >= self.page_count):
            for i in range(gone):
                self.free_page(i)
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
            self.free_page(i)
        self.page_count = 0
        self.open_count = 0
        self.unspilled = 0
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
        bit: cython.int
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
            if page.alive and page.entries == cython.NULL:
                bit = next_bit(page.packed, cython.cast(cython.int, start & (PAGE_ENTRIES - 1)))
                if bit < PAGE_ENTRIES:
                    return (number << PAGE_SHIFT) + bit
            elif page.alive:
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
        i: cython.int
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
                        i = cython.cast(cython.int, start & (PAGE_ENTRIES - 1))
                        if page.entries == cython.NULL:
                            if (page.packed.alive[i >> 6] >> (i & 63)) & 1:
                                return start
                        elif page.entries[i].subject:
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
                    if page.entries == cython.NULL:
                        total += bits_between(
                            page.packed, cython.cast(cython.int, start & (PAGE_ENTRIES - 1)),
                            cython.cast(cython.int, stop & (PAGE_ENTRIES - 1)),
                        )  # fmt: skip
                        start = stop + 1
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
        """First sequence at or after `start` of a subject; 0 when there is none."""
        end: cython.ulonglong
        number: cython.ulonglong
        page: cython.pointer(Page)
        bit: cython.int
        if start < self.first_seq:
            start = self.first_seq
        while start <= self.last_seq:
            number = start >> PAGE_SHIFT
            end = (number + 1) << PAGE_SHIFT
            if number - self.page_base < cython.cast(cython.ulonglong, self.page_count):
                page = cython.address(self.pages[number - self.page_base])
                if page.entries != cython.NULL:
                    while start < end:
                        if page.entries[start & (PAGE_ENTRIES - 1)].subject == subject:
                            return start
                        start += 1
                elif page.packed != cython.NULL:
                    bit = cython.cast(cython.int, start & (PAGE_ENTRIES - 1))
                    bit = find_subject(page.packed, subject, bit)
                    if bit < PAGE_ENTRIES:
                        return (number << PAGE_SHIFT) + bit
            start = end
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def scan_prev(self, subject: cython.uint, start: cython.ulonglong) -> cython.ulonglong:
        """Last sequence at or before `start` of a subject; 0 when there is none."""
        number: cython.ulonglong
        page: cython.pointer(Page)
        bit: cython.int
        start = min(start, self.last_seq)
        while start >= self.first_seq and start:
            number = start >> PAGE_SHIFT
            if number < self.page_base:
                return 0
            if number - self.page_base < cython.cast(cython.ulonglong, self.page_count):
                page = cython.address(self.pages[number - self.page_base])
                bit = cython.cast(cython.int, start & (PAGE_ENTRIES - 1))
                if page.entries != cython.NULL:
                    while bit >= 0 and page.entries[bit].subject != subject:
                        bit -= 1
                elif page.packed != cython.NULL:
                    bit = find_subject_back(page.packed, subject, bit)
                else:
                    bit = -1
                if bit >= 0:
                    return (number << PAGE_SHIFT) + bit
            start = (number << PAGE_SHIFT) - 1 if number else 0
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def follow(
        self, sequence: cython.ulonglong, entry: cython.pointer(cython.const[IndexEntry])
    ) -> cython.ulonglong:
        """Next sequence of the same subject; 0 at the end."""
        if self.names.items[entry.subject].last == sequence:
            return 0
        return self.scan_next(entry.subject, sequence + max(entry.next, 1))

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def precede(
        self, sequence: cython.ulonglong, entry: cython.pointer(cython.const[IndexEntry])
    ) -> cython.ulonglong:
        """Sequence of the same subject before this one; 0 at the start."""
        if self.names.items[entry.subject].first == sequence:
            return 0
        return self.scan_prev(entry.subject, sequence - max(entry.prev, 1))

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
