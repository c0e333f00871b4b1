"""Frames of the S2 and Snappy stream format whose content is not compressed: written, and read in
runs, each byte copied once.

A frame is its kind, the length of what follows in three bytes, a masked checksum of four and the
content (framing_format.txt of Snappy).
"""

import cython
from cython.cimports.cpython.buffer import (
    Py_buffer,
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.bytearray import (
    PyByteArray_AS_STRING,
    PyByteArray_GET_SIZE,
    PyByteArray_Resize,
)
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.storage.format.crc import crc32c
from cython.cimports.libc.string import memcpy

BLOCK_BYTES = 1 << 16
"""Bytes of content in a frame that is written, at most: every reader has room for these."""

RUN_BYTES = 1 << 20
"""Bytes of content that are put together when frames are read, at most: others wait meanwhile."""

RUN = cython.declare(cython.Py_ssize_t, 1 << 20)
BLOCK = cython.declare(cython.Py_ssize_t, 1 << 16)
HEAD = cython.declare(cython.Py_ssize_t, 8)
CHECK = cython.declare(cython.Py_ssize_t, 4)
PLAIN = cython.declare(cython.uchar, 1)
# What the format adds to a checksum, so that a checksum of checksums is no special case.
MASK_DELTA = cython.declare(cython.uint, 0xA282EAD8)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def masked(data: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.uint:
    """The checksum of `n` bytes, as frames carry it."""
    crc: cython.uint = crc32c(0, data, n)
    return ((crc >> 15) | (crc << 17)) + MASK_DELTA


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def body_size(data: cython.p_const_uchar) -> cython.Py_ssize_t:
    """The length of what follows the first four bytes of a frame."""
    return (
        cython.cast(cython.Py_ssize_t, data[1])
        | cython.cast(cython.Py_ssize_t, data[2]) << 8
        | cython.cast(cython.Py_ssize_t, data[3]) << 16
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def wrapped_size(size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Bytes of the frames of `size` bytes of content."""
    return size + HEAD * ((size + BLOCK - 1) // BLOCK)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def wrap(to: cython.p_uchar, source: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.void:
    """Write the frames of `size` bytes of content."""
    n: cython.Py_ssize_t
    length: cython.uint
    check: cython.uint
    while size:
        n = min(size, BLOCK)
        length = cython.cast(cython.uint, n + CHECK)
        check = masked(source, n)
        to[0] = PLAIN
        to[1] = length & 255
        to[2] = (length >> 8) & 255
        to[3] = length >> 16
        to[4] = check & 255
        to[5] = (check >> 8) & 255
        to[6] = (check >> 16) & 255
        to[7] = check >> 24
        memcpy(to + HEAD, source, n)
        to += HEAD + n
        source += n
        size -= n


def wrapped(data: bytes, lead: bytes = b"") -> bytes:
    """`data` in plain frames of at most BLOCK_BYTES, behind `lead`."""
    size: cython.Py_ssize_t = PyBytes_GET_SIZE(data)
    before: cython.Py_ssize_t = PyBytes_GET_SIZE(lead)
    made: bytes = PyBytes_FromStringAndSize(cython.NULL, before + wrapped_size(size))
    to: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(made))
    memcpy(to, PyBytes_AS_STRING(lead), before)
    wrap(to + before, cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(data)), size)
    return made


def wrap_onto(wire: bytearray, data: object) -> None:
    """Write `data`, a buffer, behind what is in `wire`, in plain frames."""
    before: cython.Py_ssize_t = PyByteArray_GET_SIZE(wire)
    view: Py_buffer
    PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
    try:
        PyByteArray_Resize(wire, before + wrapped_size(view.len))
        wrap(
            cython.cast(cython.p_uchar, PyByteArray_AS_STRING(wire)) + before,
            cython.cast(cython.p_const_uchar, view.buf),
            view.len,
        )
    finally:
        PyBuffer_Release(cython.address(view))


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def run_content(
    data: cython.p_const_uchar, n: cython.Py_ssize_t, most: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Bytes of content in the plain frames that `n` bytes begin with: whole ones, with at most
    `most` bytes together."""
    total: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    while n - at >= HEAD and data[at] == PLAIN:
        size = body_size(data + at)
        if size < CHECK or n - at < 4 + size or total + size - CHECK > most:
            break
        total += size - CHECK
        at += 4 + size
    return total


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def check_of(data: cython.p_const_uchar) -> cython.uint:
    """The checksum that a frame carries behind its first four bytes."""
    return (
        cython.cast(cython.uint, data[4])
        | cython.cast(cython.uint, data[5]) << 8
        | cython.cast(cython.uint, data[6]) << 16
        | cython.cast(cython.uint, data[7]) << 24
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def copy_run(
    to: cython.p_uchar, source: cython.p_const_uchar, left: cython.pointer(cython.Py_ssize_t)
) -> cython.Py_ssize_t:
    """Copy the content of plain frames to `to` until `left` bytes of it are there or a checksum is
    wrong; returns the bytes of the frames, and `left` is what was not copied."""
    at: cython.Py_ssize_t = 0
    n: cython.Py_ssize_t
    while left[0]:
        n = body_size(source + at) - CHECK
        if masked(source + at + HEAD, n) != check_of(source + at):
            break
        memcpy(to, source + at + HEAD, n)
        to += n
        at += HEAD + n
        left[0] -= n
    return at


def contents(piece: bytes, at: int, first: object = b"") -> "tuple[bytes, int]":
    """`first`, a buffer, and behind it the content of the whole plain frames that follow each other
    from `at`, RUN_BYTES with it; and where the next frame begins. It stops before one that is
    damaged. Raises ValueError when `at` is not in `piece`."""
    begin: cython.Py_ssize_t = at
    source: cython.p_const_uchar
    left: cython.Py_ssize_t
    before: Py_buffer
    if begin < 0 or begin > PyBytes_GET_SIZE(piece):
        raise ValueError("there is no such place in the piece")
    source = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(piece)) + begin
    PyObject_GetBuffer(first, cython.address(before), PyBUF_SIMPLE)
    try:
        left = run_content(source, PyBytes_GET_SIZE(piece) - begin, RUN - before.len)
        made: bytes = PyBytes_FromStringAndSize(cython.NULL, before.len + left)
        to: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(made))
        memcpy(to, before.buf, before.len)
        if left:
            begin += copy_run(to + before.len, source, cython.address(left))
    finally:
        PyBuffer_Release(cython.address(before))
    return (made[: len(made) - left] if left else made), begin


def contents_onto(to: object, piece: object, at: int) -> tuple:
    """Copy the content of the whole plain frames that follow each other from `at` in `piece` to
    `to`, as much as has room there: the bytes that were copied, and where the next frame begins. It
    stops before one that is damaged. Both are buffers. Raises ValueError when `at` is not in
    `piece`."""
    begin: cython.Py_ssize_t = at
    whole: cython.Py_ssize_t = 0
    left: cython.Py_ssize_t = 0
    room: Py_buffer
    source: Py_buffer
    PyObject_GetBuffer(piece, cython.address(source), PyBUF_SIMPLE)
    try:
        if begin < 0 or begin > source.len:
            raise ValueError("there is no such place in the piece")
        PyObject_GetBuffer(to, cython.address(room), PyBUF_WRITABLE)
        try:
            frames: cython.p_const_uchar = cython.cast(cython.p_const_uchar, source.buf) + begin
            whole = left = run_content(frames, source.len - begin, room.len)
            if left:
                begin += copy_run(
                    cython.cast(cython.p_uchar, room.buf), frames, cython.address(left)
                )
        finally:
            PyBuffer_Release(cython.address(room))
    finally:
        PyBuffer_Release(cython.address(source))
    return whole - left, begin
