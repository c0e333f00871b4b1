"""Blocks of the S2 and Snappy formats: one compressed piece of at most 4 MiB.

Reading takes both formats, as real servers write S2. Writing keeps to what Snappy knows, which
every reader takes. Sizes and offsets are checked before memory is touched.
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.libc.string import memcpy, memset

BLOCK_MAX = 4 << 20
"""Bytes that a block holds at most when it is read."""

WRITTEN_MAX = 1 << 16
"""Bytes that a block holds at most when it is written: offsets take two bytes."""

LIMIT = cython.declare(cython.Py_ssize_t, 4 << 20)
TABLE_BITS = cython.declare(cython.int, 14)
table = cython.declare(cython.ushort[16384])
# Bytes at the end that are not looked at for repetitions.
MARGIN = cython.declare(cython.Py_ssize_t, 12)
BAD = cython.declare(cython.Py_ssize_t, -1)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def little(at: cython.p_const_uchar, width: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """A number of `width` bytes, the lowest first."""
    value: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    for i in range(width):
        value |= cython.cast(cython.Py_ssize_t, at[i]) << (8 * i)
    return value


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def head(
    data: cython.p_const_uchar, n: cython.Py_ssize_t, total: cython.pointer(cython.Py_ssize_t)
) -> cython.Py_ssize_t:
    """Read how long the content is; returns the bytes that say it, or BAD."""
    value: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    for i in range(min(n, 5)):
        value |= cython.cast(cython.Py_ssize_t, data[i] & 127) << (7 * i)
        if data[i] < 128:
            total[0] = value
            return i + 1
    return BAD


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def repeat(
    out: cython.p_uchar, done: cython.Py_ssize_t, offset: cython.Py_ssize_t, n: cython.Py_ssize_t
) -> cython.void:
    """Append `n` bytes from `offset` before the end; they may overlap what is appended."""
    i: cython.Py_ssize_t
    if offset >= n:
        memcpy(out + done, out + done - offset, n)
        return
    for i in range(n):
        out[done + i] = out[done + i - offset]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def unpack(
    data: cython.p_const_uchar,
    n: cython.Py_ssize_t,
    out: cython.p_uchar,
    total: cython.Py_ssize_t,
) -> cython.bint:
    """Decode the elements of a block into `out`; False when they are no block of `total` bytes."""
    at: cython.Py_ssize_t = 0
    done: cython.Py_ssize_t = 0
    offset: cython.Py_ssize_t = 0
    length: cython.Py_ssize_t
    width: cython.Py_ssize_t
    tag: cython.int
    while at < n:
        tag = data[at]
        length = tag >> 2
        if tag & 3:
            width = 1 << ((tag & 3) - 1)
        else:
            width = length - 59 if length > 59 else 0
        at += 1
        if width > n - at:
            return False
        if tag & 3 == 0:
            if width:
                length = little(data + at, width)
            length += 1
            at += width
            if length > n - at or length > total - done:
                return False
            memcpy(out + done, data + at, length)
            at += length
            done += length
            continue
        if tag & 3 == 1:
            length = (tag >> 2) & 7
            width = (tag & 224) << 3 | data[at]
            at += 1
            if width:
                offset = width
            elif length >= 5:
                width = length - 4
                if width > n - at:
                    return False
                length = little(data + at, width)
                length += 4 if width == 1 else (256 if width == 2 else 65536)
                at += width
            length += 4
        else:
            length += 1
            offset = little(data + at, width)
            at += width
        if offset < 1 or offset > done or length > total - done:
            return False
        repeat(out, done, offset, length)
        done += length
    return done == total


def decode_block(data: bytes) -> bytes:
    """The content of a block. Raises ValueError."""
    total: cython.Py_ssize_t = 0
    source: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(data))
    used: cython.Py_ssize_t = head(source, PyBytes_GET_SIZE(data), cython.address(total))
    out: bytes
    if used == BAD or total > LIMIT:
        raise ValueError("block is too large")
    out = PyBytes_FromStringAndSize(cython.NULL, total)
    target: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(out))
    if not unpack(source + used, PyBytes_GET_SIZE(data) - used, target, total):
        raise ValueError("block is damaged")
    return out


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def literal(
    out: cython.p_uchar, data: cython.p_const_uchar, n: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Write bytes as they are; returns the length of that."""
    used: cython.Py_ssize_t = 1
    if n == 0:
        return 0
    if n <= 60:
        out[0] = (n - 1) << 2
    elif n <= 256:
        out[0] = 240
        out[1] = n - 1
        used = 2
    else:
        out[0] = 244
        out[1] = (n - 1) & 255
        out[2] = (n - 1) >> 8
        used = 3
    memcpy(out + used, data, n)
    return used + n


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def copies(
    out: cython.p_uchar, offset: cython.Py_ssize_t, n: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Write a repetition; returns the length of that."""
    used: cython.Py_ssize_t = 0
    part: cython.Py_ssize_t
    while n > 0:
        part = min(n, 64)
        out[used] = 2 | (part - 1) << 2
        out[used + 1] = offset & 255
        out[used + 2] = offset >> 8
        used += 3
        n -= part
    return used


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def word(at: cython.p_const_uchar) -> cython.uint:
    value: cython.uint
    memcpy(cython.address(value), at, 4)
    return value


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def pack(
    data: cython.p_const_uchar,
    n: cython.Py_ssize_t,
    out: cython.p_uchar,
    room: cython.Py_ssize_t,
    thorough: cython.bint,
) -> cython.Py_ssize_t:
    """Encode the elements of a block into `out`; BAD when they take more than `room`."""
    at: cython.Py_ssize_t = 1
    begun: cython.Py_ssize_t = 0
    used: cython.Py_ssize_t = 0
    seen: cython.Py_ssize_t
    length: cython.Py_ssize_t
    missed: cython.Py_ssize_t = 32
    h: cython.uint
    memset(table, 0, cython.sizeof(cython.ushort) << TABLE_BITS)
    while at < n - MARGIN:
        h = (word(data + at) * cython.cast(cython.uint, 0x1E35A7BD)) >> (32 - TABLE_BITS)
        seen = table[h]
        table[h] = at
        if word(data + seen) != word(data + at):
            at += 1 if thorough else missed >> 5
            missed += 1
            continue
        missed = 32
        length = 4
        while at + length < n and data[seen + length] == data[at + length]:
            length += 1
        if used + (at - begun) + 4 + 3 * (length // 64 + 1) > room:
            return BAD
        used += literal(out + used, data + begun, at - begun)
        used += copies(out + used, at - seen, length)
        at += length
        begun = at
    if used + (n - begun) + 4 > room:
        return BAD
    return used + literal(out + used, data + begun, n - begun)


def encode_block(data: bytes, thorough: bool = False) -> bytes | None:
    """A block of at most `WRITTEN_MAX` bytes; None when it would not be an eighth shorter.

    `thorough` looks for repetitions at every byte.
    """
    n: cython.Py_ssize_t = PyBytes_GET_SIZE(data)
    room: cython.Py_ssize_t = n - n // 8
    used: cython.Py_ssize_t
    look: cython.bint = thorough
    left: cython.Py_ssize_t = n
    start: cython.Py_ssize_t = 0
    out: bytes
    if n > 65536 or n < 32:
        return None
    out = PyBytes_FromStringAndSize(cython.NULL, room)
    target: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(out))
    while left >= 128:
        target[start] = 128 | (left & 127)
        left >>= 7
        start += 1
    target[start] = left
    start += 1
    used = pack(
        cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(data)), n, target + start, room - start,
        look,
    )
    return None if used == BAD else out[: start + used]
