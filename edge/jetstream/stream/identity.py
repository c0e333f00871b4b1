"""Copies of stored messages whose header block says which message of which stream they are."""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.wire.header_block import kept_length
from cython.cimports.headwater.edge.wire.numbers import put_number
from cython.cimports.headwater.edge.wire.time_text import put_time
from cython.cimports.libc.string import memcpy


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put(out: cython.p_uchar, text: cython.p_const_char, size: cython.Py_ssize_t) -> cython.p_uchar:
    """Write some bytes; returns where the next ones go."""
    memcpy(out, text, size)
    return out + size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_place(
    out: cython.p_uchar, sequence: cython.ulonglong, timestamp: cython.longlong
) -> cython.p_uchar:
    """Write the lines of a sequence and a time, ended before the line end of the last one."""
    out = put(out, b"\r\nNats-Sequence: ", 17)
    out += put_number(out, sequence)
    out = put(out, b"\r\nNats-Time-Stamp: ", 19)
    return out + put_time(out, timestamp)


@cython.cfunc
def identified(
    stream: bytes,
    original: cython.pointer(Content),
    payload: cython.Py_ssize_t,
    lines: cython.p_const_uchar,
    end: cython.p_const_uchar,
) -> bytes:
    """A message of `stream` with `payload` bytes of its payload. To its header block come its
    stream, its subject, and what is between `lines` and `end`: begun by CR LF, the rest of the
    block."""
    kept: cython.Py_ssize_t = kept_length(original.header_len)
    named: cython.Py_ssize_t = PyBytes_GET_SIZE(stream)
    more: cython.Py_ssize_t = end - lines
    size: cython.Py_ssize_t = (kept or 10) + 13 + named + 16 + original.subject_len + more + payload
    whole: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
    at: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(whole))
    if kept:
        at = put(at, cython.cast(cython.p_const_char, original.body), kept)
    else:
        at = put(at, b"NATS/1.0\r\n", 10)
    at = put(at, b"Nats-Stream: ", 13)
    at = put(at, PyBytes_AS_STRING(stream), named)
    at = put(at, b"\r\nNats-Subject: ", 16)
    at = put(at, cython.cast(cython.p_const_char, original.subject), original.subject_len)
    at = put(at, cython.cast(cython.p_const_char, lines), more)
    put(at, cython.cast(cython.p_const_char, original.body + original.header_len), payload)
    return whole
