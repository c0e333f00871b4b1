"""A large frame of a link in pieces, so that others may go between them: no line is held up by one.

    PMSG <bytes of the frame that are left behind this piece> <size>\r\n<bytes>\r\n

Numbers have leading zeros, so a piece's line has one length. The pieces of a frame follow each
other, with frames of another lane between them. There is one frame in pieces at a time.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.libc.string import memcpy, memmove

# PMSG, nine digits and six, and two line ends.
PIECE_FRAME = cython.declare(cython.Py_ssize_t, 25)
BODY_AT = cython.declare(cython.Py_ssize_t, 23)
# What six digits tell.
PIECE_MAX = 999_999


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_digits(out: cython.p_uchar, value: cython.Py_ssize_t, digits: cython.int) -> cython.void:
    """Write `value` with leading zeros."""
    i: cython.int = digits
    while i > 0:
        i -= 1
        out[i] = cython.cast(cython.uchar, 48 + value % 10)
        value //= 10


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def pieces_spare(n: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Bytes that a frame of at most `n` needs beside its own, in pieces of `size`."""
    return ((n + size - 1) // size) * PIECE_FRAME


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_pieces(
    frame: cython.p_uchar, n: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Cut a frame of `n` bytes into pieces of `size`, at most PIECE_MAX, where it stands; returns
    how long it is now. There is room for `pieces_spare` behind it."""
    count: cython.Py_ssize_t = (n + size - 1) // size
    i: cython.Py_ssize_t = count
    here: cython.Py_ssize_t
    to: cython.p_uchar
    while i > 0:
        i -= 1
        here = min(size, n - i * size)
        to = frame + i * (size + PIECE_FRAME)
        memmove(to + BODY_AT, frame + i * size, here)
        memcpy(to, b"PMSG ", 5)
        put_digits(to + 5, n - i * size - here, 9)
        to[14] = 32
        put_digits(to + 15, here, 6)
        memcpy(to + 21, b"\r\n", 2)
        memcpy(to + BODY_AT + here, b"\r\n", 2)
    return n + count * PIECE_FRAME


@cython.cclass
class Pieces:
    """What has come of one frame; `left` is how many bytes of it have not, 0 between frames."""

    def __init__(self):
        self.come = bytearray()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add(
        self, part: cython.p_const_uchar, n: cython.Py_ssize_t, left: cython.Py_ssize_t
    ) -> cython.bint:
        """Take the next piece, `n` bytes, behind which `left` follow; whether it can be one."""
        if n == 0 or (self.left and n + left != self.left):
            return False
        self.come += PyBytes_FromStringAndSize(cython.cast(cython.p_char, part), n)
        self.left = left
        return True

    @cython.cfunc
    def whole(self) -> bytes:
        """The frame, which is complete; the next piece begins another."""
        frame: bytes = bytes(self.come)
        self.come = bytearray()
        return frame
