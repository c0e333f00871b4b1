"""Many subject patterns, asked at once whether one of them matches a subject.

A tree of tokens: what patterns have in common is compared once. Literal children stand in one hash
table, so that a subject costs its tokens and the wildcards on its way, not the number of patterns.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.headwater.edge.subjects.text_hash import hash_text
from cython.cimports.libc.stdlib import calloc, free, malloc
from cython.cimports.libc.string import memcmp, memset

DOT = cython.declare(cython.uchar, 46)
STAR = cython.declare(cython.uchar, 42)
TAIL = cython.declare(cython.uchar, 62)


@cython.cclass
class PatternSet:
    """Patterns (bytes, 2 GiB together at most), fixed from the start. `seed` makes its hash one
    that nobody can foresee."""

    def __init__(self, patterns: tuple, seed: int):
        most: cython.size_t = 1
        size: cython.size_t = 4
        start: cython.Py_ssize_t = 0
        pattern: bytes
        for item in patterns:
            pattern = item
            most += pattern.count(b".") + 1
        while size < most * 2:
            size *= 2
        self.texts = b"".join(patterns)
        self.start = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(self.texts))
        if most >= 1 << 30 or PyBytes_GET_SIZE(self.texts) >= 1 << 31:
            raise MemoryError("too many patterns")
        free(self.nodes)
        free(self.buckets)
        self.capacity = cython.cast(cython.uint, most)
        self.nodes = cython.cast(
            cython.pointer(PatternNode), calloc(most, cython.sizeof(PatternNode))
        )
        self.buckets = cython.cast(cython.p_uint, malloc(size * cython.sizeof(cython.uint)))
        if self.nodes == cython.NULL or self.buckets == cython.NULL:
            raise MemoryError
        memset(self.buckets, 0, size * cython.sizeof(cython.uint))
        self.mask = cython.cast(cython.uint, size - 1)
        self.seed = seed
        self.count = 1
        for item in patterns:
            pattern = item
            self.enter(start, start + PyBytes_GET_SIZE(pattern))
            start += PyBytes_GET_SIZE(pattern)

    def __dealloc__(self):
        free(self.nodes)
        free(self.buckets)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def enter(self, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """Add the pattern between two places of `texts`."""
        text: cython.p_const_uchar = self.start
        node: cython.uint = 0
        following: cython.uint
        stop: cython.Py_ssize_t
        while start <= end:
            stop = start
            while stop < end and text[stop] != DOT:
                stop += 1
            if stop == end and stop == start + 1 and text[start] == TAIL:
                self.nodes[node].tail = True
                return 0
            if stop == start + 1 and text[start] == STAR:
                following = self.nodes[node].star
                if not following:
                    following = self.make(node, start, 0)
                    self.nodes[node].star = following
            else:
                following = self.child(node, text + start, stop - start)
                if not following:
                    following = self.make(node, start, stop - start)
                    self.link(following)
                    self.nodes[node].literals += 1
            node = following
            start = stop + 1
        self.nodes[node].ends = True
        return 0

    @cython.cfunc
    @cython.exceptval(0, check=False)
    def make(
        self, parent: cython.uint, start: cython.Py_ssize_t, n: cython.Py_ssize_t
    ) -> cython.uint:
        """A new node for the token at a place of `texts`."""
        number: cython.uint = self.count
        if number >= self.capacity:
            raise MemoryError("a set of patterns has fewer nodes than tokens")
        self.nodes[number].parent = parent
        self.nodes[number].text = cython.cast(cython.uint, start)
        self.nodes[number].size = cython.cast(cython.uint, n)
        self.count += 1
        return number

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def link(self, number: cython.uint) -> cython.void:
        """Enter a node into the hash table."""
        node: cython.pointer(PatternNode) = cython.address(self.nodes[number])
        text: cython.p_const_uchar = self.start
        node.hash = hash_text(self.seed + node.parent, text + node.text, node.size)
        i: cython.uint = node.hash & self.mask
        while self.buckets[i]:
            i = (i + 1) & self.mask
        self.buckets[i] = number

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def child(
        self, parent: cython.uint, token: cython.p_const_uchar, n: cython.Py_ssize_t
    ) -> cython.uint:
        """The node of a literal token below another one; 0 when there is none."""
        text: cython.p_const_uchar = self.start
        h: cython.uint = hash_text(self.seed + parent, token, n)
        i: cython.uint = h & self.mask
        node: cython.pointer(PatternNode)
        while self.buckets[i]:
            node = cython.address(self.nodes[self.buckets[i]])
            if (
                node.hash == h
                and node.parent == parent
                and node.size == n
                and memcmp(text + node.text, token, n) == 0
            ):
                return self.buckets[i]
            i = (i + 1) & self.mask
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def matches(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
        """Whether a pattern matches `subject`, which is taken literally. Counts `steps`."""
        return self.below(0, subject, 0, n)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def below(
        self,
        node: cython.uint,
        subject: cython.p_const_uchar,
        at: cython.Py_ssize_t,
        n: cython.Py_ssize_t,
    ) -> cython.bint:
        """Whether what a node's patterns go on with matches a subject from `at` on."""
        found: cython.uint
        stop: cython.Py_ssize_t
        while True:
            self.steps += 1
            if at > n:
                return self.nodes[node].ends
            if self.nodes[node].tail and at < n:
                return True
            stop = at
            while stop < n and subject[stop] != DOT:
                stop += 1
            found = 0
            if self.nodes[node].literals:
                found = self.child(node, subject + at, stop - at)
            if self.nodes[node].star == 0 or stop == at:
                if found == 0:
                    return False
                node = found
            else:
                # One recursion for each wildcard token of a pattern, no more.
                if found and self.below(found, subject, stop + 1, n):
                    return True
                node = self.nodes[node].star
            at = stop + 1

    def match(self, subject: bytes) -> bool:
        """`matches` for interpreted callers."""
        return self.matches(
            cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(subject)), len(subject)
        )
