"""Raw header blocks (ADR-4): lookup and room for one more line, without copying.

A block is `NATS/1.0[ status]`, lines `Key: value`, and an empty line, each ended by CR LF. Keys are
matched byte by byte; the first of several wins; blanks before a value are dropped. A publisher may
send any bytes as a block, from one byte on: nothing here takes its form for granted.
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.libc.string import memchr, memcmp, memcpy

PREFIX = b"NATS/1.0\r\n"
PREFIX_LEN = cython.declare(cython.Py_ssize_t, 10)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def value_of(line: cython.p_const_uchar, n: cython.Py_ssize_t, key_len: cython.Py_ssize_t) -> Slice:
    """The value in a header line of `n` bytes whose key (and colon) are known."""
    found: Slice
    start: cython.Py_ssize_t = key_len + 1
    while start < n and line[start] == 32:
        start += 1
    found.at = line + start
    found.n = n - start
    return found


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def line_length(at: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Bytes before the next CR LF, or all `n` without one."""
    i: cython.Py_ssize_t = 0
    hit: cython.p_const_uchar
    while i + 1 < n:
        hit = cython.cast(cython.p_const_uchar, memchr(at + i, 13, n - i - 1))
        if hit == cython.NULL:
            return n
        if hit[1] == 10:
            return hit - at
        i = hit - at + 1
    return n


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def find_header(
    block: cython.p_const_uchar,
    n: cython.Py_ssize_t,
    key: cython.p_const_uchar,
    key_len: cython.Py_ssize_t,
) -> Slice:
    """The value of the first header `key`; its `n` is -1 when there is none."""
    found: Slice
    i: cython.Py_ssize_t = line_length(block, n) + 2
    length: cython.Py_ssize_t
    found.at = cython.NULL
    found.n = -1
    while i < n:
        length = line_length(block + i, n - i)
        if (
            length > key_len
            and block[i + key_len] == 58
            and memcmp(block + i, key, key_len) == 0
        ):
            return value_of(block + i, length, key_len)
        i += length + 2
    return found


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def kept_length(n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Of a block of `n` bytes, those that stay when lines are added: all but the empty line.

    0 when nothing is left; the lines then follow `PREFIX`.
    """
    return n - 2 if n > 2 else 0


def opened(block: bytes) -> bytes:
    """`block` (may be empty) as it stands before lines are added to it, and the empty line."""
    return block[: kept_length(len(block))] or PREFIX


@cython.cfunc
def extended(
    body: cython.p_const_uchar,
    header_len: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    lines: bytes,
) -> bytes:
    """A message, its block of `header_len` of the `size` bytes at `body`, with more header lines.

    Each of `lines` is ended by CR LF. The payload stays; what the message grew by is the block's.
    """
    kept: cython.Py_ssize_t = kept_length(header_len)
    added: cython.Py_ssize_t = PyBytes_GET_SIZE(lines)
    head: cython.Py_ssize_t = kept if kept else PREFIX_LEN
    out: bytes = PyBytes_FromStringAndSize(cython.NULL, head + added + 2 + size - header_len)
    at: cython.p_char = PyBytes_AS_STRING(out)
    if kept:
        memcpy(at, body, kept)
    else:
        memcpy(at, cython.cast(cython.p_const_char, b"NATS/1.0\r\n"), head)
    at += head
    memcpy(at, PyBytes_AS_STRING(lines), added)
    at += added
    memcpy(at, cython.cast(cython.p_const_char, b"\r\n"), 2)
    memcpy(at + 2, body + header_len, size - header_len)
    return out
