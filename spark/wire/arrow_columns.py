"""Columns in Arrow's layout that grow: buffers, and texts with their offsets."""

import cython
from cython.cimports.cpython.bytearray import (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_Resize,
)
from cython.cimports.libc.stdint import int32_t, int64_t
from cython.cimports.libc.string import memcpy

from headwater.spark.wire.errors import WireError

#: Largest size of one Arrow column, bytes: its offsets are 32 bits wide.
MAX_COLUMN = (1 << 31) - 1
_C_MAX_COLUMN = cython.declare(cython.Py_ssize_t, MAX_COLUMN)


@cython.final
@cython.cclass
class Buffer:
    """A growing run of bytes that is given away whole, so that Arrow can use it in place."""

    def __cinit__(self):
        self.renew(4096)

    @cython.cfunc
    @cython.exceptval(-1)
    def renew(self, capacity: cython.Py_ssize_t) -> cython.int:
        self.data = PyByteArray_FromStringAndSize(cython.NULL, capacity)
        self.ptr = PyByteArray_AS_STRING(self.data)
        self.capacity = capacity
        self.used = 0
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def grow(self, extra: cython.Py_ssize_t) -> cython.int:
        need: cython.Py_ssize_t = self.used + extra
        size: cython.Py_ssize_t = self.capacity * 2
        if need > _C_MAX_COLUMN:
            raise WireError("a batch column would pass 2 GiB")
        if size < need:
            size = need
        if size > _C_MAX_COLUMN:
            size = _C_MAX_COLUMN
        PyByteArray_Resize(self.data, size)
        self.ptr = PyByteArray_AS_STRING(self.data)
        self.capacity = size
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def put(self, source: cython.p_char, size: cython.Py_ssize_t) -> cython.int:
        if size > self.capacity - self.used:
            self.grow(size)
        memcpy(self.ptr + self.used, source, size)
        self.used += size
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def put_int32(self, value: int32_t) -> cython.int:
        if self.capacity - self.used < 4:
            self.grow(4)
        memcpy(self.ptr + self.used, cython.address(value), 4)
        self.used += 4
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def put_int64(self, value: int64_t) -> cython.int:
        if self.capacity - self.used < 8:
            self.grow(8)
        memcpy(self.ptr + self.used, cython.address(value), 8)
        self.used += 8
        return 0

    @cython.cfunc
    def drain(self) -> tuple:
        """(bytearray, used). The next batch starts with the capacity that this one needed."""
        given: tuple = (self.data, self.used)
        self.renew(max(4096, self.used + (self.used >> 3)))
        return given


@cython.final
@cython.cclass
class TextColumn:
    """A string or binary column: int32 offsets, starting with 0, and data."""

    def __cinit__(self):
        self.offsets = Buffer()
        self.data = Buffer()
        self.offsets.put_int32(0)

    @cython.cfunc
    @cython.exceptval(-1)
    def put(self, source: cython.p_char, size: cython.Py_ssize_t) -> cython.int:
        self.data.put(source, size)
        self.offsets.put_int32(cython.cast(int32_t, self.data.used))
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def put_text(self, source: cython.p_char, size: cython.Py_ssize_t) -> cython.int:
        """Append as UTF-8; bytes that are not UTF-8 become U+FFFD."""
        i: cython.Py_ssize_t
        high: cython.uchar = 0
        for i in range(size):
            high |= cython.cast(cython.uchar, source[i])
        if high & 0x80:
            clean: bytes = source[:size].decode("utf-8", "replace").encode("utf-8")
            self.put(clean, len(clean))
        else:
            self.put(source, size)
        return 0

    @cython.cfunc
    def drain(self) -> tuple:
        given: tuple = (self.offsets.drain(), self.data.drain())
        self.offsets.put_int32(0)
        return given
