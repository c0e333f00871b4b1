"""Headers in raw blocks (ADR-4): lookup without copying, and editing for the rare paths.

A block is `NATS/1.0[ status]`, lines `Key: value`, and an empty line, each ended by CR LF. Keys are
matched byte by byte; the first of several wins; blanks before a value are dropped.
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.libc.string import memchr, memcmp

PREFIX = b"NATS/1.0\r\n"
END = b"\r\n"


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
    """Bytes before the next CR LF; -1 without one."""
    i: cython.Py_ssize_t = 0
    hit: cython.p_const_uchar
    while i + 1 < n:
        hit = cython.cast(cython.p_const_uchar, memchr(at + i, 13, n - i - 1))
        if hit == cython.NULL:
            return -1
        if hit[1] == 10:
            return hit - at
        i = hit - at + 1
    return -1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def find_header(
    block: cython.p_const_uchar,
    n: cython.Py_ssize_t,
    key: cython.p_const_uchar,
    key_len: cython.Py_ssize_t,
) -> Slice:
    """The value of the first header `key`; `n` is -1 when there is none."""
    found: Slice
    i: cython.Py_ssize_t = 0
    length: cython.Py_ssize_t
    first: cython.bint = True
    found.at = cython.NULL
    found.n = -1
    while i < n:
        length = line_length(block + i, n - i)
        if length < 0:
            break
        if (
            not first
            and length > key_len
            and block[i + key_len] == 58
            and memcmp(block + i, key, key_len) == 0
        ):
            return value_of(block + i, length, key_len)
        first = False
        i += length + 2
    return found


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def same(
    line: cython.p_const_uchar, text: cython.p_const_char, n: cython.Py_ssize_t
) -> cython.bint:
    return memcmp(line, text, n) == 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def slot_for(
    line: cython.p_const_uchar, key_len: cython.Py_ssize_t, out: cython.pointer(PublishHeaders)
) -> cython.pointer(Slice):
    """Where the value of a `Nats-` header goes; NULL when the fast path does not need it."""
    if key_len == 11 and same(line, b"Nats-Msg-Id", 11):
        return cython.address(out.msg_id)
    if key_len == 11 and same(line, b"Nats-Rollup", 11):
        return cython.address(out.rollup)
    if key_len == 8 and same(line, b"Nats-TTL", 8):
        return cython.address(out.ttl)
    if key_len == 20 and same(line, b"Nats-Expected-Stream", 20):
        return cython.address(out.expected_stream)
    if key_len == 25 and same(line, b"Nats-Expected-Last-Msg-Id", 25):
        return cython.address(out.expected_last_id)
    if key_len == 27 and same(line, b"Nats-Expected-Last-Sequence", 27):
        return cython.address(out.expected_last)
    if key_len == 35 and same(line, b"Nats-Expected-Last-Subject-Sequence", 35):
        return cython.address(out.expected_subject_last)
    if key_len == 43 and same(line, b"Nats-Expected-Last-Subject-Sequence-Subject", 43):
        return cython.address(out.expected_subject)
    return cython.NULL


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def is_slow(line: cython.p_const_uchar, key_len: cython.Py_ssize_t) -> cython.bint:
    """Whether a `Nats-` header belongs to batches, counters, schedules, sources or requests."""
    if key_len == 9 and same(line, b"Nats-Incr", 9):
        return True
    if key_len >= 11 and same(line, b"Nats-Batch-", 11):
        return True
    if key_len >= 13 and same(line, b"Nats-Schedule", 13):
        return True
    if key_len == 18 and same(line, b"Nats-Stream-Source", 18):
        return True
    return key_len == 17 and same(line, b"Nats-Request-Info", 17)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def scan_publish(
    block: cython.p_const_uchar, n: cython.Py_ssize_t, out: cython.pointer(PublishHeaders)
) -> cython.int:
    """Find every header that a stream acts on, in one pass."""
    i: cython.Py_ssize_t = 0
    length: cython.Py_ssize_t
    key_len: cython.Py_ssize_t
    colon: cython.p_const_uchar
    slot: cython.pointer(Slice)
    out.any = out.slow = False
    out.msg_id.n = out.expected_stream.n = out.expected_last_id.n = out.expected_last.n = -1
    out.expected_subject_last.n = out.expected_subject.n = out.rollup.n = out.ttl.n = -1
    while i < n:
        length = line_length(block + i, n - i)
        if length < 0:
            break
        if length > 5 and same(block + i, b"Nats-", 5):
            colon = cython.cast(cython.p_const_uchar, memchr(block + i, 58, length))
            if colon != cython.NULL:
                key_len = colon - (block + i)
                slot = slot_for(block + i, key_len, out)
                if slot != cython.NULL:
                    if slot.n < 0:
                        slot[0] = value_of(block + i, length, key_len)
                        out.any = True
                elif is_slow(block + i, key_len):
                    out.slow = True
        i += length + 2
    return 0


def get(block: bytes, key: bytes) -> bytes | None:
    """The value of the first header `key`, None when there is none."""
    found: Slice = find_header(
        cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(block)),
        PyBytes_GET_SIZE(block),
        cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(key)),
        PyBytes_GET_SIZE(key),
    )
    if found.n < 0:
        return None
    return PyBytes_FromStringAndSize(cython.cast(cython.p_char, found.at), found.n)


def add(block: bytes, key: bytes, value: bytes) -> bytes:
    """`block` (may be empty) with one more header at its end."""
    head: bytes = block[:-2] if block else PREFIX
    return head + key + b": " + value + b"\r\n\r\n"


def without(block: bytes, drop: object) -> bytes:
    """`block` without the headers for whose key `drop(key)` is true; empty when none is left."""
    lines: list = block.split(b"\r\n")
    kept: list = [line for line in lines[1:-2] if not drop(line.split(b":", 1)[0])]
    if not kept:
        return b""
    return b"\r\n".join([lines[0], *kept]) + b"\r\n\r\n"


def parse(block: bytes) -> dict:
    """All headers as a dict; the first of several wins."""
    found: dict = {}
    for line in block.split(b"\r\n")[1:]:
        key, colon, value = line.partition(b":")
        if colon:
            found.setdefault(key, value.strip(b" "))
    return found
