"""A message as direct gets answer with it (ADR-31): its header block says which one it is."""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.storage.index.store import Record
from cython.cimports.headwater.edge.wire.header_block import kept_length
from cython.cimports.headwater.edge.wire.numbers import put_number
from cython.cimports.libc.string import memcpy

from headwater.edge.jetstream.model.times import format_time

SECOND = cython.declare(cython.longlong, 1_000_000_000)
_second: cython.longlong = -1
_text: bytes = b""


@cython.cfunc
@cython.exceptval(-1, check=False)
def put_time(out: cython.p_uchar, ns: cython.longlong) -> cython.Py_ssize_t:
    """Write a time as `format_time` does, at most 40 bytes; returns how many. The text of a second
    is kept for the next message of that second."""
    global _second, _text
    second: cython.longlong = ns // SECOND
    fraction: cython.longlong = ns - second * SECOND
    size: cython.Py_ssize_t
    digits: cython.Py_ssize_t = 9
    whole: bytes
    if ns < 0:
        whole = format_time(ns).encode()
        size = PyBytes_GET_SIZE(whole)
        memcpy(out, PyBytes_AS_STRING(whole), size)
        return size
    if second != _second:
        _text = format_time(second * 1_000_000_000).encode().removesuffix(b"Z")
        _second = second
    size = PyBytes_GET_SIZE(_text)
    memcpy(out, PyBytes_AS_STRING(_text), size)
    if fraction:
        while fraction % 10 == 0:
            fraction //= 10
            digits -= 1
        out[size] = 46
        for at in range(size + digits, size, -1):
            out[at] = cython.cast(cython.uchar, 48 + fraction % 10)
            fraction //= 10
        size += 1 + digits
    out[size] = 90
    return size + 1


def time_text(ns: int) -> bytes:
    """What `put_time` writes."""
    out: cython.uchar[40]
    size: cython.Py_ssize_t = put_time(out, ns)
    return PyBytes_FromStringAndSize(cython.cast(cython.p_char, cython.address(out[0])), size)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put(
    out: cython.p_uchar, text: cython.p_const_char, size: cython.Py_ssize_t
) -> cython.p_uchar:
    memcpy(out, text, size)
    return out + size


@cython.cfunc
def direct_body(
    stream: bytes,
    record: cython.pointer(Record),
    place: cython.pointer(BatchPlace),
) -> bytes:
    """Header block and payload of a message of `stream`; with `place` (or NULL), that in a batch.

    What it grew by is the block's.
    """
    lines: cython.uchar[256]
    at: cython.p_uchar = cython.address(lines[0])
    at = put(at, b"\r\nNats-Sequence: ", 17)
    at += put_number(at, record.sequence)
    at = put(at, b"\r\nNats-Time-Stamp: ", 19)
    at += put_time(at, record.timestamp)
    if place != cython.NULL:
        at = put(at, b"\r\nNats-Num-Pending: ", 20)
        at += put_number(at, place.pending)
        at = put(at, b"\r\nNats-Last-Sequence: ", 22)
        at += put_number(at, place.last)
    at = put(at, b"\r\n\r\n", 4)
    tail: cython.Py_ssize_t = at - cython.address(lines[0])
    kept: cython.Py_ssize_t = kept_length(record.header_len)
    named: cython.Py_ssize_t = PyBytes_GET_SIZE(stream)
    payload: cython.Py_ssize_t = record.size - record.header_len
    whole: bytes = PyBytes_FromStringAndSize(
        cython.NULL, (kept or 10) + 13 + named + 16 + record.subject_len + tail + payload
    )
    at = cython.cast(cython.p_uchar, PyBytes_AS_STRING(whole))
    if kept:
        at = put(at, cython.cast(cython.p_const_char, record.body), kept)
    else:
        at = put(at, b"NATS/1.0\r\n", 10)
    at = put(at, b"Nats-Stream: ", 13)
    at = put(at, PyBytes_AS_STRING(stream), named)
    at = put(at, b"\r\nNats-Subject: ", 16)
    at = put(at, cython.cast(cython.p_const_char, record.subject), record.subject_len)
    at = put(at, cython.cast(cython.p_const_char, cython.address(lines[0])), tail)
    put(at, cython.cast(cython.p_const_char, record.body + record.header_len), payload)
    return whole
