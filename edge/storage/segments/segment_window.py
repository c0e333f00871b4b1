"""The part of a stream's segments that was read last: who reads in order finds the next message in
it. What it holds is not verified; whoever serves a record of it does that.
"""

import cython
from cython.cimports.headwater.edge.storage.device.file_calls import read_some
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.libc.string import memset

# One read from a segment, when a record needs no more.
WINDOW_BYTES = cython.declare(cython.Py_ssize_t, 65536)


@cython.cclass
class SegmentWindow:
    """Bytes of one segment, from one offset on."""

    def __dealloc__(self):
        free(self.bytes)

    @cython.cfunc
    @cython.exceptval(check=False)
    def find(
        self, number: cython.uint, offset: cython.Py_ssize_t, need: cython.Py_ssize_t
    ) -> cython.p_const_uchar:
        """The `need` bytes at an offset of a segment, until the next call; NULL when they are not
        all here."""
        if self.number != number or offset < self.start or offset + need > self.start + self.length:
            return cython.NULL
        self.used = True
        return self.bytes + (offset - self.start)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def fill(
        self,
        fd: cython.int,
        number: cython.uint,
        offset: cython.Py_ssize_t,
        need: cython.Py_ssize_t,
    ) -> cython.int:
        """Read the part of a segment that begins at `offset`, of `need` bytes at least. Raises
        OSError."""
        n: cython.Py_ssize_t
        want: cython.Py_ssize_t = max(need, WINDOW_BYTES)
        grown: cython.p_void
        if want > self.capacity or (self.capacity > WINDOW_BYTES and want == WINDOW_BYTES):
            grown = realloc(self.bytes, want)
            if grown == cython.NULL:
                raise MemoryError
            self.bytes = cython.cast(cython.p_uchar, grown)
            self.capacity = want
        self.number = number
        self.start = offset
        self.length = 0
        while self.length < want:
            n = read_some(fd, self.bytes + self.length, want - self.length, offset + self.length)
            if n > 0:
                self.length += n
            elif n == 0 or want == need:
                break
            want = need if n < 0 else want
        if self.length < need:
            raise OSError(5, "it cannot be read, or is too short")
        return 0

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def forget(self) -> cython.int:
        """The file changed: read it again."""
        self.number = 0
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def wipe(self, number: cython.uint) -> cython.int:
        """Overwrite what is here of a segment."""
        if self.number == number and self.bytes != cython.NULL:
            memset(self.bytes, 0, self.capacity)
            self.number = 0
        return 0

    def drop_unused(self) -> None:
        """Give the room back when nothing was read since the last call."""
        if self.used:
            self.used = False
        elif self.bytes != cython.NULL:
            free(self.bytes)
            self.bytes = cython.NULL
            self.capacity = 0
            self.number = 0
