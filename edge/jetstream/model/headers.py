"""What a stream reads in header blocks, in one pass, and their editing for the rare paths."""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.wire.header_block import (
    Slice,
    find_header,
    line_length,
    value_of,
)
from cython.cimports.libc.string import memchr, memcmp

from headwater.edge.wire.header_block import opened

EMPTY = b"NATS/1.0\r\n\r\n"


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
def field_for(
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
def batch_field(
    line: cython.p_const_uchar, key_len: cython.Py_ssize_t, out: cython.pointer(PublishHeaders)
) -> cython.pointer(Slice):
    """Where the value of a header of atomic batches goes; NULL when it is none of them."""
    if key_len == 13 and same(line, b"Nats-Batch-Id", 13):
        return cython.address(out.batch_id)
    if key_len == 19 and same(line, b"Nats-Batch-Sequence", 19):
        return cython.address(out.batch_sequence)
    if key_len == 17 and same(line, b"Nats-Batch-Commit", 17):
        return cython.address(out.batch_commit)
    return cython.NULL


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def is_slow(line: cython.p_const_uchar, key_len: cython.Py_ssize_t) -> cython.bint:
    """Whether a `Nats-` header belongs to counters, schedules, sources or requests."""
    if key_len == 9 and same(line, b"Nats-Incr", 9):
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
    i: cython.Py_ssize_t = line_length(block, n) + 2
    length: cython.Py_ssize_t
    key_len: cython.Py_ssize_t
    colon: cython.p_const_uchar
    field: cython.pointer(Slice)
    out.any = out.slow = out.more = False
    out.batch_id.n = out.batch_sequence.n = out.batch_commit.n = -1
    out.msg_id.n = out.expected_stream.n = out.expected_last_id.n = out.expected_last.n = -1
    out.expected_subject_last.n = out.expected_subject.n = out.rollup.n = out.ttl.n = -1
    while i < n:
        length = line_length(block + i, n - i)
        if length > 5 and same(block + i, b"Nats-", 5):
            colon = cython.cast(cython.p_const_uchar, memchr(block + i, 58, length))
            if colon != cython.NULL:
                key_len = colon - (block + i)
                field = field_for(block + i, key_len, out)
                if field != cython.NULL:
                    if field.n < 0:
                        field[0] = value_of(block + i, length, key_len)
                        out.any = True
                    i += length + 2
                    continue
                field = batch_field(block + i, key_len, out)
                if field != cython.NULL:
                    if field.n < 0:
                        field[0] = value_of(block + i, length, key_len)
                    out.slow = True
                else:
                    out.more = True
                    if is_slow(block + i, key_len):
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
    return opened(block) + key + b": " + value + b"\r\n\r\n"


def put(block: bytes, key: bytes, value: bytes) -> bytes:
    """`block` with `value` as that of its first header `key`, or at its end when it has none."""
    first, *lines = block.split(b"\r\n")
    for i in range(len(lines)):
        if lines[i].split(b":", 1)[0] == key and b":" in lines[i]:
            lines[i] = key + b": " + value
            return b"\r\n".join([first, *lines])
    return add(block, key, value)


def without(block: bytes, drop: object) -> bytes:
    """`block` without the headers for whose key `drop(key)` is true; empty when none is left."""
    first, *lines = block.split(b"\r\n")
    kept: list = [
        line for line in lines if b":" not in line or not drop(line.split(b":", 1)[0])
    ]
    if len(kept) == len(lines):
        return block
    block = b"\r\n".join([first, *kept])
    return b"" if len(block) <= len(EMPTY) else block


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def has_status(block: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
    """Whether the first line of a block says more than the version."""
    return (
        n > 8
        and block[8] != 13
        and same(block, b"NATS/1.0", 8)
        and memchr(block + 8, 13, n - 8) != cython.NULL
    )


def without_status(block: bytes) -> bytes:
    """`block` without the status of its first line; empty when nothing is left."""
    version, cr, lines = block.partition(b"\r")
    if not cr or not version.startswith(b"NATS/1.0"):
        return block
    block = b"NATS/1.0\r" + lines
    return b"" if block == EMPTY else block


def parse(block: bytes) -> dict:
    """All headers as a dict; the first of several wins."""
    found: dict = {}
    for line in block.split(b"\r\n")[1:]:
        key, colon, value = line.partition(b":")
        if colon:
            found.setdefault(key, value.strip(b" "))
    return found
