"""Matches that were made before, found again by the text of a subject.

Sets of four buckets, chosen by a seeded hash, and no object is made for a lookup. A table that is
half full, or has a full set, starts anew with twice the size, up to a bound; then a full set gives
up one of its four. What it forgets is matched again, so nothing depends on what it holds.
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.cpython.list import PyList_GET_ITEM
from cython.cimports.headwater.edge.subjects.text_hash import hash_text
from cython.cimports.headwater.edge.subjects.trie import Match
from cython.cimports.libc.stdlib import calloc, free
from cython.cimports.libc.string import memcmp, memset

WAYS = cython.declare(cython.uint, 4)
BUCKETS_INITIAL = cython.declare(cython.uint, 64)
# Subjects whose matches are remembered are at most as many; a fleet that publishes on more than
# this walks the trie.
BUCKETS_MAX = cython.declare(cython.uint, 16384)


@cython.cclass
class MatchCache:
    """Subject -> Match, bounded."""

    def __init__(self, seed: int):
        """`seed` has 64 bits that no publisher knows, so that nobody fills one set on purpose."""
        self.seed = seed
        self.allocate(BUCKETS_INITIAL)

    def __dealloc__(self):
        free(self.hashes)
        free(self.following)

    def __len__(self) -> int:
        return self.count

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def allocate(self, buckets: cython.uint) -> cython.int:
        """Begin with `buckets` empty buckets, a power of two."""
        size: cython.size_t = cython.sizeof(cython.uint)
        hashes: cython.p_uint = cython.cast(cython.p_uint, calloc(buckets, size))
        following: cython.p_uint = cython.cast(cython.p_uint, calloc(buckets, size))
        if hashes == cython.NULL or following == cython.NULL:
            free(hashes)
            free(following)
            raise MemoryError
        free(self.hashes)
        free(self.following)
        self.hashes = hashes
        self.following = following
        self.keys = [None] * buckets
        self.matches = [None] * buckets
        self.mask = buckets - 1
        self.count = self.recent = 0
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def holds(
        self, bucket: cython.uint, subject: cython.p_const_uchar, n: cython.Py_ssize_t
    ) -> cython.bint:
        """Whether a bucket is that of a subject."""
        key: bytes = cython.cast(bytes, PyList_GET_ITEM(self.keys, bucket))
        return (
            self.hashes[bucket] != 0
            and PyBytes_GET_SIZE(key) == n
            and memcmp(PyBytes_AS_STRING(key), subject, n) == 0
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def find_bucket(
        self, h: cython.uint, subject: cython.p_const_uchar, n: cython.Py_ssize_t
    ) -> cython.int:
        """The bucket that holds a subject; -1 when none does."""
        first: cython.uint = h & self.mask & ~(WAYS - 1)
        i: cython.uint
        for i in range(first, first + WAYS):
            if self.hashes[i] == h and self.holds(i, subject, n):
                return cython.cast(cython.int, i)
        return -1

    @cython.cfunc
    @cython.exceptval(check=False)
    def vacancy(self, h: cython.uint) -> cython.int:
        """An empty bucket of the set of a hash; -1 when the set is full."""
        first: cython.uint = h & self.mask & ~(WAYS - 1)
        i: cython.uint
        for i in range(first, first + WAYS):
            if self.hashes[i] == 0:
                return cython.cast(cython.int, i)
        return -1

    @cython.cfunc
    def find(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> Match:
        """The match that was put for a subject; None when there is none. The one of the last call,
        and what followed upon it the time before, are tried first: publishers repeat themselves."""
        last: cython.uint = self.recent
        at: cython.int = cython.cast(cython.int, last)
        if not self.holds(last, subject, n):
            at = cython.cast(cython.int, self.following[last])
            if not self.holds(self.following[last], subject, n):
                at = self.find_bucket(hash_text(self.seed, subject, n) | 1, subject, n)
                if at < 0:
                    return None
                self.following[last] = cython.cast(cython.uint, at)
            self.recent = cython.cast(cython.uint, at)
        return cython.cast(Match, PyList_GET_ITEM(self.matches, at))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t, match: Match) -> cython.int:
        """Remember a match."""
        h: cython.uint = hash_text(self.seed, subject, n) | 1
        first: cython.uint
        at: cython.int = self.find_bucket(h, subject, n)
        if at < 0:
            at = self.vacancy(h)
            if self.count > self.mask >> 1 or (at < 0 and self.mask + 1 < BUCKETS_MAX):
                self.allocate(min((self.mask + 1) * 2, BUCKETS_MAX))
                at = self.vacancy(h)
            if at < 0:
                first = h & self.mask & ~(WAYS - 1)
                at = cython.cast(cython.int, first + ((h >> 16) & (WAYS - 1)))
            else:
                self.count += 1
            self.keys[at] = PyBytes_FromStringAndSize(cython.cast(cython.p_char, subject), n)
            self.hashes[at] = h
        self.matches[at] = match
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def drop(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.int:
        """Forget one subject."""
        at: cython.int = self.find_bucket(hash_text(self.seed, subject, n) | 1, subject, n)
        if at >= 0:
            self.hashes[at] = 0
            self.keys[at] = self.matches[at] = None
            self.count -= 1
        return 0

    def fanouts(self) -> list[int]:
        """How many receivers each subject has that is remembered; a queue group is one."""
        found: list = []
        match: Match
        for item in self.matches:
            if item is not None:
                match = item
                found.append(len(match.plain) + len(match.queues))
        return found

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def clear(self) -> cython.int:
        """Forget every subject."""
        i: cython.uint
        if self.count:
            memset(self.hashes, 0, (self.mask + 1) * cython.sizeof(cython.uint))
            for i in range(self.mask + 1):
                self.keys[i] = self.matches[i] = None
            self.count = 0
        return 0
