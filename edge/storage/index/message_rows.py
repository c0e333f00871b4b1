"""Messages of a store as rows of bytes, many at a time, for a copy of the store elsewhere.

A row is a head of 28 bytes, then subject, header block and payload:

    u64 sequence   i64 timestamp   u32 bytes of the subject   u32 of the headers   u32 of both
    headers and payload

Alive runs say which sequences a store holds: pairs of u64, first and last of each run, ascending.
Numbers are little endian.
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.kernel.kernel import MADE, Msg
from cython.cimports.headwater.edge.storage.index.store import MessageStore, Record
from cython.cimports.libc.stdlib import free, malloc, realloc
from cython.cimports.libc.string import memcpy, memset

from headwater.edge.storage.format.errors import StoreError

HEAD_BYTES = cython.declare(cython.Py_ssize_t, 28)
# Looked at in one call, so that a store full of holes does not hold the loop for long.
SCAN_MAX = cython.declare(cython.ulonglong, 1 << 18)
RUN_BYTES = cython.declare(cython.Py_ssize_t, 16)


def pack_rows(
    store: MessageStore, after: int, last: int, bytes_max: int
) -> tuple[bytes, int]:
    """Rows of messages behind sequence `after`, up to `last` at most, of about `bytes_max` bytes
    (one greater message goes alone), and the sequence up to which nothing is missing in them.
    Raises Damaged."""
    record: Record
    reached: cython.ulonglong = after
    stop: cython.ulonglong = min(last, after + SCAN_MAX)
    sequence: cython.ulonglong
    capacity: cython.Py_ssize_t = max(bytes_max, 4096)
    most: cython.Py_ssize_t = capacity
    used: cython.Py_ssize_t = 0
    need: cython.Py_ssize_t
    grown: cython.p_uchar
    out: cython.p_uchar = cython.cast(cython.p_uchar, malloc(capacity))
    if out == cython.NULL:
        raise MemoryError
    try:
        while reached < stop:
            sequence = store.next_alive(reached + 1)
            if sequence == 0 or sequence > stop:
                reached = stop
                break
            if not store.load(sequence, cython.address(record)):
                reached = sequence
                continue
            need = HEAD_BYTES + record.subject_len + record.size
            if used and used + need > most:
                break
            if used + need > capacity:
                grown = cython.cast(cython.p_uchar, realloc(out, used + need))
                if grown == cython.NULL:
                    raise MemoryError
                out = grown
                capacity = used + need
            used += put_row(out + used, cython.address(record))
            reached = sequence
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, out), used), reached
    finally:
        free(out)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_row(out: cython.p_uchar, record: cython.pointer(Record)) -> cython.Py_ssize_t:
    """Write one row; returns its bytes."""
    lengths: cython.uint[3]
    lengths[0] = cython.cast(cython.uint, record.subject_len)
    lengths[1] = cython.cast(cython.uint, record.header_len)
    lengths[2] = cython.cast(cython.uint, record.size)
    memcpy(out, cython.address(record.sequence), 8)
    memcpy(out + 8, cython.address(record.timestamp), 8)
    memcpy(out + 16, lengths, 12)
    memcpy(out + HEAD_BYTES, record.subject, record.subject_len)
    memcpy(out + HEAD_BYTES + record.subject_len, record.body, record.size)
    return HEAD_BYTES + record.subject_len + record.size


def add_rows(store: MessageStore, rows: bytes) -> int:
    """Store the messages of rows under their own sequences and timestamps; what they leave out
    stays empty. Returns how many. Raises StoreError when storage takes no more, or when these are
    no rows; those before are stored then."""
    m: Msg
    at: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(rows))
    left: cython.Py_ssize_t = PyBytes_GET_SIZE(rows)
    sequence: cython.ulonglong = 0
    timestamp: cython.longlong = 0
    lengths: cython.uint[3]
    need: cython.Py_ssize_t
    count: cython.Py_ssize_t = 0
    memset(cython.address(m), 0, cython.sizeof(Msg))
    m.via = MADE
    while left:
        if left < HEAD_BYTES:
            raise StoreError("rows of messages are cut off")
        memcpy(cython.address(sequence), at, 8)
        memcpy(cython.address(timestamp), at + 8, 8)
        memcpy(lengths, at + 16, 12)
        need = HEAD_BYTES + cython.cast(cython.Py_ssize_t, lengths[0])
        need += cython.cast(cython.Py_ssize_t, lengths[2])
        if need > left or lengths[1] > lengths[2] or sequence == 0:
            raise StoreError("rows of messages are cut off")
        if store.messages == 0:
            store.skip(sequence - 1)
        m.subject = at + HEAD_BYTES
        m.subject_len = lengths[0]
        m.body = m.subject + lengths[0]
        m.header_len = lengths[1]
        m.size = lengths[2]
        store.append(cython.address(m), timestamp, sequence)
        at += need
        left -= need
        count += 1
    return count


def alive_runs(store: MessageStore) -> bytes:
    """Which sequences are stored."""
    first: cython.ulonglong = store.next_alive(0)
    last: cython.ulonglong
    capacity: cython.Py_ssize_t = 64 * RUN_BYTES
    used: cython.Py_ssize_t = 0
    grown: cython.p_uchar
    out: cython.p_uchar
    if store.messages and store.messages == store.last_seq - first + 1:
        return store.first_seq.to_bytes(8, "little") + store.last_seq.to_bytes(8, "little")
    out = cython.cast(cython.p_uchar, malloc(capacity))
    if out == cython.NULL:
        raise MemoryError
    try:
        while first:
            last = first
            while store.at(last + 1) != cython.NULL:
                last += 1
            if used == capacity:
                grown = cython.cast(cython.p_uchar, realloc(out, 2 * capacity))
                if grown == cython.NULL:
                    raise MemoryError
                out = grown
                capacity *= 2
            memcpy(out + used, cython.address(first), 8)
            memcpy(out + used + 8, cython.address(last), 8)
            used += RUN_BYTES
            first = store.next_alive(last + 1)
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, out), used)
    finally:
        free(out)


def keep_runs(store: MessageStore, runs: bytes) -> int:
    """Take out every message that is not in `runs` (as of `alive_runs`); returns how many.
    Raises StoreError when these are no runs."""
    at: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(runs))
    left: cython.Py_ssize_t = PyBytes_GET_SIZE(runs)
    sequence: cython.ulonglong = store.next_alive(0)
    first: cython.ulonglong = 0
    last: cython.ulonglong = 0
    count: cython.Py_ssize_t = 0
    if left % RUN_BYTES:
        raise StoreError("runs of sequences are cut off")
    while sequence:
        while left and sequence > last:
            memcpy(cython.address(first), at, 8)
            memcpy(cython.address(last), at + 8, 8)
            at += RUN_BYTES
            left -= RUN_BYTES
        if sequence > last or sequence < first:
            store.remove(sequence, False)
            count += 1
            sequence = store.next_alive(sequence + 1)
        elif last >= store.last_seq:
            break
        else:
            sequence = store.next_alive(last + 1)
    return count
