"""A set of subject patterns bound to one stream: which message matches next, and how many do.

Matching is decided once per subject, not per message. Few subjects are merged by following their
links; many are found by scanning entries against a table of one byte per subject.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.headwater.edge.storage.index.index import (
    PAGE_ENTRIES,
    PAGE_SHIFT,
    IndexEntry,
    MessageIndex,
    Page,
)
from cython.cimports.headwater.edge.storage.index.packed_page import subject_at, unpack_subjects
from cython.cimports.headwater.edge.storage.index.subject_table import Subject, SubjectTable
from cython.cimports.headwater.edge.subjects.pattern_set import PatternSet
from cython.cimports.headwater.edge.subjects.tokens import is_literal, subject_matches
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.libc.string import memset

MATCHES = cython.declare(cython.uchar, 1)
LISTED = cython.declare(cython.uchar, 2)
# Following one link costs about as much as scanning this many neighbouring entries.
LINK_COST = cython.declare(cython.ulonglong, 16)
# So many entries are scanned before the end of what matches is looked for among the hits.
NEAR = cython.declare(cython.ulonglong, 4096)
# From so many patterns on they are asked at once.
TOGETHER = cython.declare(cython.Py_ssize_t, 4)
# More steps than any look takes.
EVERY_STEP = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)


@cython.cfunc
@cython.inline
def text_of(pattern: bytes) -> cython.p_const_uchar:
    return cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(pattern))


@cython.cclass
class Filter:
    """Patterns of a consumer or of a request. Without patterns it matches everything."""

    def __init__(self, index: MessageIndex, patterns: tuple):
        pattern: bytes
        self.index = index
        self.patterns = () if b">" in patterns else tuple(dict.fromkeys(patterns))
        self.literal = len(self.patterns) <= CURSORS
        for item in self.patterns:
            pattern = item
            if not is_literal(text_of(pattern), PyBytes_GET_SIZE(pattern)):
                self.literal = False
        if self.literal and self.patterns:
            for _ in range(len(self.patterns)):
                self.add_hit(0)
        elif len(self.patterns) >= TOGETHER:
            self.together = PatternSet(self.patterns, index.names.seed)
            self.exact = True
            for item in self.patterns:
                pattern = item
                if not is_literal(text_of(pattern), PyBytes_GET_SIZE(pattern)):
                    self.exact = False
                    break
        self.seen = 0
        memset(cython.address(self.cursors[0]), 0, cython.sizeof(Cursor) * CURSORS)

    def __dealloc__(self):
        free(self.hits)
        free(self.table)

    def matches(self, subject: bytes) -> bool:
        """Whether a subject, stored or not, matches."""
        return self.matches_text(text_of(subject), len(subject))

    @cython.cfunc
    def matches_text(self, text: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
        pattern: bytes
        if not self.patterns:
            return True
        if self.together is not None:
            return self.together.matches(text, n)
        for item in self.patterns:
            pattern = item
            if subject_matches(text_of(pattern), PyBytes_GET_SIZE(pattern), text, n):
                return True
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def matches_id(self, subject_id: cython.uint) -> cython.int:
        """Whether the subject with this number in the store matches."""
        i: cython.uint
        if not self.patterns:
            return 1
        self.refresh()
        if self.literal:
            for i in range(self.hit_count):
                if self.hits[i] == subject_id:
                    return 1
            return 0
        return self.table[subject_id] & MATCHES if subject_id < self.table_size else 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add_hit(self, number: cython.uint) -> cython.int:
        grown: cython.p_void
        capacity: cython.uint
        if self.hit_count == self.hit_capacity:
            capacity = self.hit_capacity * 2 or CURSORS
            grown = realloc(self.hits, cython.cast(cython.size_t, capacity) * 4)
            if grown == cython.NULL:
                raise MemoryError
            self.hits = cython.cast(cython.p_uint, grown)
            self.hit_capacity = capacity
        self.hits[self.hit_count] = number
        self.hit_count += 1
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def refresh(self) -> cython.int:
        """Learn of subjects that are new since the last call."""
        known: SubjectTable = self.index.names
        pattern: bytes
        number: cython.uint
        total: cython.ulonglong = known.fresh_base + known.fresh_count
        if self.literal:
            for number in range(self.hit_count):
                pattern = self.patterns[number]
                self.hits[number] = known.find(text_of(pattern), PyBytes_GET_SIZE(pattern))
            return 0
        if self.seen == total and self.table_size and not self.swept:
            return 0
        self.look(EVERY_STEP)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def grow_table(self) -> cython.int:
        """Have a byte for each subject number."""
        known: SubjectTable = self.index.names
        grown: cython.p_void
        if self.table_size < known.capacity:
            grown = realloc(self.table, known.capacity)
            if grown == cython.NULL:
                raise MemoryError
            self.table = cython.cast(cython.p_uchar, grown)
            memset(self.table + self.table_size, 0, known.capacity - self.table_size)
            self.table_size = known.capacity
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def look(self, steps: cython.ulonglong) -> cython.bint:
        """Decide about subjects, about `steps` of them; whether that were all.

        A first look goes through all numbers. What gets another meaning meanwhile is in `fresh`,
        and is decided at the end; when too many did, the look begins again.
        """
        known: SubjectTable = self.index.names
        total: cython.ulonglong = known.fresh_base + known.fresh_count
        spent: cython.ulonglong = self.together.steps if self.together is not None else 0
        self.grow_table()
        if (self.swept == 0 and (self.seen < known.fresh_base or self.seen == 0)) or (
            self.swept and self.swept_from < known.fresh_base
        ):
            memset(self.table, 0, self.table_size)
            self.hit_count = 0
            self.swept = 1
            self.swept_from = total
            if self.exact:
                self.find_each()
        while self.swept:
            if self.swept >= known.used:
                self.swept = 0
                self.seen = self.swept_from
                break
            if steps == 0 or (self.together is not None and self.together.steps - spent > steps):
                return False
            if known.items[self.swept].stamp:
                self.judge(self.swept)
            self.swept += 1
            if steps != EVERY_STEP:
                steps -= 1
        while self.seen < total:
            self.judge(known.fresh[self.seen - known.fresh_base])
            self.seen += 1
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def find_each(self) -> cython.int:
        """The first look of a filter without wildcards."""
        known: SubjectTable = self.index.names
        pattern: bytes
        number: cython.uint
        for item in self.patterns:
            pattern = item
            number = known.find(text_of(pattern), PyBytes_GET_SIZE(pattern))
            if number:
                self.judge(number)
        self.swept = known.used
        return 0

    def sweep(self, steps: int) -> bool:
        """Decide about some more subjects, by about `steps` comparisons; whether all are decided.
        Whoever asks the filter anything before has all of them decided at once."""
        return self.literal or not self.patterns or self.look(steps)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def judge(self, number: cython.uint) -> cython.int:
        """Decide about one subject."""
        s: cython.pointer(Subject) = cython.address(self.index.names.items[number])
        mark: cython.uchar = self.table[number] & LISTED
        if s.stamp and self.matches_text(s.text, s.size):
            if not mark:
                self.add_hit(number)
            mark = MATCHES | LISTED
        self.table[number] = mark
        return 0

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def next(self, start: cython.ulonglong) -> cython.ulonglong:
        """First matching sequence at or after `start`; 0 when there is none."""
        last: cython.ulonglong
        found: cython.ulonglong
        i: cython.uint
        number: cython.uint
        items: cython.pointer(Subject)
        if not self.patterns:
            return self.index.next_alive(start)
        self.refresh()
        if start < self.index.first_seq:
            start = self.index.first_seq
        items = self.index.names.items
        if self.hit_count <= CURSORS:
            return self.next_of_few(start)
        last = min(start + NEAR, self.index.last_seq)
        found = self.scan(start, last)
        if found or last == self.index.last_seq:
            return found
        start = last + 1
        last = 0
        for i in range(self.hit_count):
            number = self.hits[i]
            if self.table[number] & MATCHES and items[number].count and items[number].last > last:
                last = items[number].last
                if last == self.index.last_seq:
                    break
        return self.scan(start, last)

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def next_until(
        self, start: cython.ulonglong, end: cython.ulonglong
    ) -> cython.ulonglong:
        """`next`, which need not look beyond `end`: what it finds there may be 0 or not."""
        if not self.patterns:
            return self.index.next_alive(start)
        self.refresh()
        if start < self.index.first_seq:
            start = self.index.first_seq
        if self.hit_count <= CURSORS:
            return self.next_of_few(start)
        return self.scan(start, min(end, self.index.last_seq))

    @cython.cfunc
    def next_of_few(self, start: cython.ulonglong) -> cython.ulonglong:
        """First sequence at or after `start` of the subjects that match, which are few."""
        best: cython.ulonglong = 0
        found: cython.ulonglong
        i: cython.uint
        number: cython.uint
        for i in range(self.hit_count):
            number = self.hits[i]
            if number and (self.literal or self.table[number] & MATCHES):
                found = self.next_of(number, cython.address(self.cursors[i]), start)
                if found and (best == 0 or found < best):
                    best = found
        return best

    @cython.cfunc
    def next_of(
        self, number: cython.uint, cursor: cython.pointer(Cursor), start: cython.ulonglong
    ) -> cython.ulonglong:
        """First sequence of one subject at or after `start`, going on from the last answer."""
        s: cython.pointer(Subject) = cython.address(self.index.names.items[number])
        entry: cython.pointer(cython.const[IndexEntry])
        at: cython.ulonglong
        if s.count == 0 or start > s.last:
            return 0
        if start <= s.first:
            at = s.first
        else:
            at = 0
            if cursor.stamp == s.stamp and start >= cursor.start:
                at = cursor.found
            if at:
                # Its entry may be of a message that went away; what it says of the next one stays.
                entry = self.index.entry(at)
                if entry == cython.NULL or (entry.subject != number and entry.subject):
                    at = 0
                elif at < start or entry.subject == 0:
                    at = self.index.scan_next(number, max(start, at + entry.next))
            if at == 0:
                at = self.seek(number, start)
        cursor.stamp = s.stamp
        cursor.start = start
        cursor.found = at
        return at

    @cython.cfunc
    def seek(self, number: cython.uint, start: cython.ulonglong) -> cython.ulonglong:
        """First sequence of one subject at or after `start`, which lies within its range."""
        s: cython.pointer(Subject) = cython.address(self.index.names.items[number])
        at: cython.ulonglong = s.last
        before: cython.ulonglong
        if self.index.packs or s.count > (s.last - start) // LINK_COST:
            return self.index.scan_next(number, start)
        while True:
            before = self.index.precede(at, self.index.entry(at))
            if before < start:
                return at
            at = before

    @cython.cfunc
    def scan(self, start: cython.ulonglong, end: cython.ulonglong) -> cython.ulonglong:
        """First entry from `start` to `end` whose subject's table byte says that it matches."""
        index: MessageIndex = self.index
        table: cython.p_uchar = self.table
        number: cython.ulonglong
        stop: cython.ulonglong
        page: cython.pointer(Page)
        subjects: cython.uint[PAGE_ENTRIES]
        while start <= end:
            number = start >> PAGE_SHIFT
            stop = min(end, ((number + 1) << PAGE_SHIFT) - 1)
            page = cython.address(index.pages[number - index.page_base])
            if page.entries != cython.NULL:
                while start <= stop:
                    if table[page.entries[start & (PAGE_ENTRIES - 1)].subject] & MATCHES:
                        return start
                    start += 1
            elif page.packed != cython.NULL:
                unpack_subjects(page.packed, subjects)
                while start <= stop:
                    if table[subjects[start & (PAGE_ENTRIES - 1)]] & MATCHES:
                        return start
                    start += 1
            start = stop + 1
        return 0

    @cython.cfunc
    def scan_count(self, start: cython.ulonglong, end: cython.ulonglong) -> cython.ulonglong:
        """Matching entries from `start` to `end`, both included and both within the index."""
        index: MessageIndex = self.index
        table: cython.p_uchar = self.table
        number: cython.ulonglong
        stop: cython.ulonglong
        total: cython.ulonglong = 0
        page: cython.pointer(Page)
        subjects: cython.uint[PAGE_ENTRIES]
        while start <= end:
            number = start >> PAGE_SHIFT
            stop = min(end, ((number + 1) << PAGE_SHIFT) - 1)
            page = cython.address(index.pages[number - index.page_base])
            if page.entries != cython.NULL:
                while start <= stop:
                    total += table[page.entries[start & (PAGE_ENTRIES - 1)].subject] & MATCHES
                    start += 1
            elif page.packed != cython.NULL:
                unpack_subjects(page.packed, subjects)
                while start <= stop:
                    total += table[subjects[start & (PAGE_ENTRIES - 1)]] & MATCHES
                    start += 1
            start = stop + 1
        return total

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def count(self, start: cython.ulonglong) -> cython.ulonglong:
        """Matching messages at or after `start`."""
        index: MessageIndex = self.index
        if not self.patterns:
            return index.count_alive(start, index.last_seq)
        if start > index.last_seq or index.messages == 0:
            return 0
        self.refresh()
        if start <= index.first_seq:
            return self.count_hits()
        if self.literal or self.hit_count <= CURSORS:
            return self.count_few(start)
        if start - index.first_seq < index.last_seq - start:
            return self.count_hits() - self.scan_count(index.first_seq, start - 1)
        return self.scan_count(start, index.last_seq)

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def count_hits(self) -> cython.ulonglong:
        """All messages that match, from the counts per subject."""
        total: cython.ulonglong = 0
        i: cython.uint
        number: cython.uint
        for i in range(self.hit_count):
            number = self.hits[i]
            if number and (self.literal or self.table[number] & MATCHES):
                total += self.index.names.items[number].count
        return total

    @cython.cfunc
    def count_few(self, start: cython.ulonglong) -> cython.ulonglong:
        """Matching messages at or after `start`, by following each subject from its nearer end."""
        total: cython.ulonglong = 0
        part: cython.ulonglong
        at: cython.ulonglong
        i: cython.uint
        number: cython.uint
        s: cython.pointer(Subject)
        for i in range(self.hit_count):
            number = self.hits[i]
            if not number or not (self.literal or self.table[number] & MATCHES):
                continue
            s = cython.address(self.index.names.items[number])
            if s.count == 0 or start > s.last:
                continue
            part = 0
            if start - self.index.first_seq < self.index.last_seq - start:
                at = s.first
                while at and at < start:
                    part += 1
                    at = self.index.follow(at, self.index.entry(at))
                total += s.count - part
            else:
                at = s.last
                while at >= start and at:
                    part += 1
                    at = self.index.precede(at, self.index.entry(at))
                total += part
        return total

    def last_ones(self, up_to: int, limit: int) -> list[int]:
        """Sequence of the newest message of every matching subject, at or below `up_to`, ascending;
        more than `limit` (0: any number) are not looked for."""
        found: list = []
        at: cython.ulonglong
        after: cython.ulonglong
        end: cython.ulonglong = min(up_to, self.index.last_seq)
        entry: cython.pointer(cython.const[IndexEntry])
        i: cython.uint
        most: cython.uint = limit or 0xFFFF_FFFF
        if not self.index.messages or end < self.index.first_seq:
            return found
        self.refresh()
        if self.patterns and self.hit_count <= (end - self.index.first_seq) // LINK_COST:
            for i in range(self.hit_count):
                at = self.last_of(self.hits[i], end)
                if at:
                    found.append(at)
                    if len(found) > most:
                        break
            return sorted(set(found))
        at = self.next_until(self.index.first_seq, end)
        while at and at <= end:
            entry = self.index.entry(at)
            # None of its subject follows up to there: it is the last.
            after = self.index.follow(at, entry)
            if after == 0 or after > end:
                found.append(at)
                if len(found) > most:
                    break
            at = self.next_until(at + 1, end)
        return found

    @cython.cfunc
    def last_of(self, number: cython.uint, end: cython.ulonglong) -> cython.ulonglong:
        """Sequence of the newest message of a subject that matches, at or below `end`; 0."""
        s: cython.pointer(Subject) = cython.address(self.index.names.items[number])
        at: cython.ulonglong = s.last
        if not number or not s.count or s.first > end:
            return 0
        if not self.literal and not self.table[number] & MATCHES:
            return 0
        while at > end:
            at = self.index.precede(at, self.index.entry(at))
        return at

    def newest(self) -> int:
        """Sequence of the newest message that matches; 0 when there is none."""
        newest: cython.ulonglong = 0
        i: cython.uint
        if not self.patterns:
            return self.index.prev_alive(self.index.last_seq)
        self.refresh()
        for i in range(self.hit_count):
            newest = max(newest, self.last_of(self.hits[i], self.index.last_seq))
        return newest
