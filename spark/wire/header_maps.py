"""Header blocks as a column of maps in Arrow's layout: a name once, its values joined."""

import cython
from cython.cimports.headwater.spark.wire.arrow_columns import Buffer, TextColumn
from cython.cimports.libc.stdint import int32_t
from cython.cimports.libc.string import memchr, memcmp, memcpy


@cython.final
@cython.cclass
class HeaderMaps:
    """One map for each header block that is put."""

    def __cinit__(self):
        self.pairs = 0
        self.offsets = Buffer()
        self.offsets.put_int32(0)
        self.keys = TextColumn()
        self.values = TextColumn()

    @cython.cfunc
    @cython.exceptval(-1)
    def put(self, block: cython.p_char, size: cython.Py_ssize_t) -> cython.int:
        """Append the lines of a header block as one map; the status line is no header."""
        newline: cython.p_char
        at: cython.Py_ssize_t = 0
        first: cython.Py_ssize_t = self.pairs
        while at < size:
            newline = cython.cast(cython.p_char, memchr(block + at, 10, size - at))
            stop: cython.Py_ssize_t = size if newline == cython.NULL else newline - block
            if at > 0:
                self.put_line(block, at, stop, first)
            at = stop + 1
        self.offsets.put_int32(cython.cast(int32_t, self.pairs))
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def put_line(
        self,
        block: cython.p_char,
        at: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        first: cython.Py_ssize_t,
    ) -> cython.int:
        colon: cython.Py_ssize_t = at
        if stop > at and block[stop - 1] == 13:
            stop -= 1
        if stop == at:
            return 0
        while colon < stop and block[colon] != 58:
            colon += 1
        value: cython.Py_ssize_t = min(colon + 1, stop)
        while value < stop and (block[value] == 32 or block[value] == 9):
            value += 1
        while stop > value and (block[stop - 1] == 32 or block[stop - 1] == 9):
            stop -= 1
        self.keys.put_text(block + at, colon - at)
        self.values.put_text(block + value, stop - value)
        self.pairs += 1
        if self.pairs - first > 1:
            self.join_repeated(first)
        return 0

    @cython.cfunc
    def cell(self, column: TextColumn, index: cython.Py_ssize_t) -> bytes:
        start: int32_t = 0
        stop: int32_t = 0
        memcpy(cython.address(start), column.offsets.ptr + 4 * index, 4)
        memcpy(cython.address(stop), column.offsets.ptr + 4 * index + 4, 4)
        return column.data.ptr[start:stop]

    @cython.cfunc
    @cython.exceptval(-1)
    def same_key(self, left: cython.Py_ssize_t, right: cython.Py_ssize_t) -> cython.bint:
        at = cython.declare(int32_t[4])
        memcpy(at, self.keys.offsets.ptr + 4 * left, 8)
        memcpy(cython.address(at[2]), self.keys.offsets.ptr + 4 * right, 8)
        if at[1] - at[0] != at[3] - at[2]:
            return False
        return memcmp(self.keys.data.ptr + at[0], self.keys.data.ptr + at[2], at[1] - at[0]) == 0

    @cython.cfunc
    @cython.exceptval(-1)
    def join_repeated(self, first: cython.Py_ssize_t) -> cython.int:
        """Join the newest pair into an earlier one of the same name, with ", " between.

        A map holds a name once; this is how RFC 9110 §5.3 folds repeated fields.
        """
        newest: cython.Py_ssize_t = self.pairs - 1
        pair: cython.Py_ssize_t = first
        while pair < newest and not self.same_key(pair, newest):
            pair += 1
        if pair == newest:
            return 0
        keys: list = []
        values: list = []
        i: cython.Py_ssize_t
        for i in range(first, newest + 1):
            keys.append(self.cell(self.keys, i))
            values.append(self.cell(self.values, i))
        values[pair - first] += b", " + values.pop()
        keys.pop()
        self.cut(self.keys, first)
        self.cut(self.values, first)
        for i in range(newest - first):
            self.keys.put(keys[i], len(keys[i]))
            self.values.put(values[i], len(values[i]))
        self.pairs = newest
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def cut(self, column: TextColumn, pairs: cython.Py_ssize_t) -> cython.int:
        start: int32_t = 0
        memcpy(cython.address(start), column.offsets.ptr + 4 * pairs, 4)
        column.offsets.used = 4 * pairs + 4
        column.data.used = start
        return 0

    @cython.cfunc
    def drain(self) -> tuple:
        """(pairs, offsets, key offsets, keys, value offsets, values); begins anew."""
        pairs = self.pairs
        offsets: tuple = self.offsets.drain()
        self.offsets.put_int32(0)
        self.pairs = 0
        return (pairs, offsets, *self.keys.drain(), *self.values.drain())
