"""Subjects of one stream, numbered, so that a message carries four bytes instead of its subject.

Open addressing with backward-shift deletion. A number whose last message went away is handed out
again; `stamp` tells the meanings of one number apart, and `fresh` lists numbers in the order in
which they got a meaning, so that filters learn of new subjects without looking at all of them.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.headwater.edge.subjects.text_hash import hash_text
from cython.cimports.libc.stdlib import free, malloc, realloc
from cython.cimports.libc.string import memcmp, memcpy, memset

# A filter that missed more new subjects than this looks at all subjects again.
FRESH_MAX = cython.declare(cython.uint, 65536)


@cython.cclass
class SubjectTable:
    """Numbers for subjects, with what is stored of each."""

    def __cinit__(self):
        self.capacity = 8
        self.items = cython.cast(cython.pointer(Subject), malloc(8 * cython.sizeof(Subject)))
        self.mask = 15
        self.buckets = cython.cast(cython.p_uint, malloc(16 * cython.sizeof(cython.uint)))
        if self.items == cython.NULL or self.buckets == cython.NULL:
            raise MemoryError
        memset(self.items, 0, 8 * cython.sizeof(Subject))
        memset(self.buckets, 0, 16 * cython.sizeof(cython.uint))
        self.used = 1

    def __dealloc__(self):
        number: cython.uint
        if self.items != cython.NULL:
            for number in range(1, self.used):
                free(self.items[number].text)
        free(self.items)
        free(self.buckets)
        free(self.unused)
        free(self.fresh)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def find(self, text: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.uint:
        """Number of a subject, 0 when it is not known."""
        h: cython.uint = hash_text(self.seed, text, n)
        i: cython.uint = h & self.mask
        number: cython.uint
        while True:
            number = self.buckets[i]
            if number == 0:
                return 0
            if (
                self.items[number].hash == h
                and self.items[number].size == n
                and memcmp(self.items[number].text, text, n) == 0
            ):
                return number
            i = (i + 1) & self.mask

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(check=False)
    def means(
        self, number: cython.uint, text: cython.p_const_uchar, n: cython.Py_ssize_t
    ) -> cython.bint:
        """Whether a number stands for a subject now."""
        s: cython.pointer(Subject) = cython.address(self.items[number])
        return 0 < number < self.used and s.stamp and s.size == n and not memcmp(s.text, text, n)

    @cython.cfunc
    @cython.exceptval(0, check=False)
    def intern(self, text: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.uint:
        """Number of a subject, given one when it is new. Quick when it is that of the last call,
        or the one that followed upon that the time before: publishers repeat themselves."""
        at: cython.uint = self.recent & (FOLLOWING - 1)
        if not self.means(self.recent, text, n):
            if self.means(self.following[at], text, n):
                self.recent = self.following[at]
            else:
                self.recent = self.following[at] = self.enter(text, n)
        return self.recent

    @cython.cfunc
    @cython.exceptval(0, check=False)
    def enter(self, text: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.uint:
        """Number of a subject by its hash, given one when it is new."""
        number: cython.uint = self.find(text, n)
        i: cython.uint
        s: cython.pointer(Subject)
        copy: cython.p_uchar
        if number:
            return number
        if self.live >= (self.mask + 1) - ((self.mask + 1) >> 2):
            self.grow_buckets()
        copy = cython.cast(cython.p_uchar, malloc(n + 1))
        if copy == cython.NULL:
            raise MemoryError
        try:
            number = self.allocate_number()
        except MemoryError:
            free(copy)
            raise
        memcpy(copy, text, n)
        s = cython.address(self.items[number])
        memset(s, 0, cython.sizeof(Subject))
        s.text = copy
        s.size = cython.cast(cython.uint, n)
        s.hash = hash_text(self.seed, text, n)
        self.stamps += 1
        s.stamp = self.stamps
        i = s.hash & self.mask
        while self.buckets[i]:
            i = (i + 1) & self.mask
        self.buckets[i] = number
        self.live += 1
        self.add_fresh(number)
        return number

    @cython.cfunc
    @cython.exceptval(0, check=False)
    def allocate_number(self) -> cython.uint:
        """A number without meaning."""
        capacity: cython.uint
        grown: cython.p_void
        if self.unused_count:
            self.unused_count -= 1
            return self.unused[self.unused_count]
        if self.used == self.capacity:
            capacity = self.capacity * 2
            if capacity <= self.capacity:
                raise MemoryError("too many subjects")
            grown = realloc(
                self.items, cython.cast(cython.size_t, capacity) * cython.sizeof(Subject)
            )
            if grown == cython.NULL:
                raise MemoryError
            self.items = cython.cast(cython.pointer(Subject), grown)
            self.capacity = capacity
        self.used += 1
        return self.used - 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def grow_buckets(self) -> cython.int:
        """Double the hash table."""
        size: cython.size_t = (cython.cast(cython.size_t, self.mask) + 1) * 2
        buckets: cython.p_uint = cython.cast(
            cython.p_uint, malloc(size * cython.sizeof(cython.uint))
        )
        old: cython.uint
        number: cython.uint
        i: cython.uint
        mask: cython.uint = cython.cast(cython.uint, size - 1)
        if buckets == cython.NULL:
            raise MemoryError
        memset(buckets, 0, size * cython.sizeof(cython.uint))
        for old in range(self.mask + 1):
            number = self.buckets[old]
            if number:
                i = self.items[number].hash & mask
                while buckets[i]:
                    i = (i + 1) & mask
                buckets[i] = number
        free(self.buckets)
        self.buckets = buckets
        self.mask = mask
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add_fresh(self, number: cython.uint) -> cython.int:
        """Remember that `number` has a new meaning; forgets all when too many are remembered."""
        grown: cython.p_void
        capacity: cython.uint
        if self.fresh_count == FRESH_MAX:
            self.fresh_base += FRESH_MAX
            self.fresh_count = 0
        if self.fresh_count == self.fresh_capacity:
            capacity = min(self.fresh_capacity * 2 or 16, FRESH_MAX)
            grown = realloc(self.fresh, capacity * cython.sizeof(cython.uint))
            if grown == cython.NULL:
                raise MemoryError
            self.fresh = cython.cast(cython.p_uint, grown)
            self.fresh_capacity = capacity
        self.fresh[self.fresh_count] = number
        self.fresh_count += 1
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def free_number(self, number: cython.uint) -> cython.int:
        """Forget a subject of which nothing is stored any more."""
        s: cython.pointer(Subject) = cython.address(self.items[number])
        hole: cython.uint = s.hash & self.mask
        i: cython.uint
        home: cython.uint
        grown: cython.p_void
        capacity: cython.uint
        if self.unused_count == self.unused_capacity:
            capacity = self.unused_capacity * 2 or 16
            grown = realloc(
                self.unused, cython.cast(cython.size_t, capacity) * cython.sizeof(cython.uint)
            )
            if grown == cython.NULL:
                raise MemoryError
            self.unused = cython.cast(cython.p_uint, grown)
            self.unused_capacity = capacity
        while self.buckets[hole] != number:
            hole = (hole + 1) & self.mask
        i = hole
        while True:
            i = (i + 1) & self.mask
            if self.buckets[i] == 0:
                break
            home = self.items[self.buckets[i]].hash & self.mask
            if ((i - home) & self.mask) >= ((i - hole) & self.mask):
                self.buckets[hole] = self.buckets[i]
                hole = i
        self.buckets[hole] = 0
        memset(s.text, 0, s.size)
        free(s.text)
        s.text = cython.NULL
        s.size = 0
        s.count = 0
        s.stamp = 0
        self.unused[self.unused_count] = number
        self.unused_count += 1
        self.live -= 1
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def clear(self) -> cython.int:
        """Forget every subject at once."""
        number: cython.uint
        for number in range(1, self.used):
            free(self.items[number].text)
            self.items[number].text = cython.NULL
            self.items[number].stamp = 0
            self.items[number].count = 0
        memset(self.buckets, 0, (cython.cast(cython.size_t, self.mask) + 1) * 4)
        self.fresh_base += self.fresh_count + 1
        self.fresh_count = 0
        self.used = 1
        self.unused_count = 0
        self.live = 0
        return 0

    @cython.cfunc
    def text(self, number: cython.uint) -> bytes:
        return PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, self.items[number].text), self.items[number].size
        )
