"""Rows of index files: what one segment of a stream holds, taken from the index in memory.

Neighbours differ little, so packed files have the differences (see index_bytes.py).
"""

import cython
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cython.cimports.cpython.bytes import PyBytes_AS_STRING
from cython.cimports.headwater.edge.storage.index.index import IN_LOG, IndexEntry
from cython.cimports.headwater.edge.storage.segments.file_store import FileStore
from cython.cimports.headwater.edge.storage.segments.stream_segment import StreamSegment

from headwater.edge.storage.segments.segment_files import IndexFile

ROW = cython.declare(cython.Py_ssize_t, 32)


def index_rows(store: FileStore, segment: StreamSegment) -> tuple[list, bytearray, bytearray]:
    """What an index file lists: [(subject number, subject)], a row per message served from the
    segment, and if some are packed the lengths of their bodies."""
    entry: cython.pointer(cython.const[IndexEntry])
    row: cython.pointer(IndexRow)
    used: dict = {}
    met: bytearray = bytearray(store.names.used)
    is_met: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(met))
    known: cython.uint = 0
    sequence: cython.ulonglong = store.next_alive(segment.first) if segment.first else 0
    rows: bytearray = bytearray(segment.live * cython.sizeof(IndexRow))
    packed: bytearray = bytearray(segment.live * 4)
    lengths: cython.p_uint = cython.cast(cython.p_uint, PyByteArray_AS_STRING(packed))
    any_packed: cython.uint = 0
    count: cython.ulonglong = 0
    while sequence and sequence <= segment.last and count < segment.live:
        entry = store.entry(sequence)
        if not entry.flags & IN_LOG and entry.location >> 32 == segment.number:
            if entry.subject != known:
                known = entry.subject
                if not is_met[known]:
                    is_met[known] = 1
                    used[known] = store.names.text(known)
            row = cython.cast(cython.pointer(IndexRow), PyByteArray_AS_STRING(rows)) + count
            row.sequence = sequence
            row.timestamp = entry.timestamp
            row.offset = cython.cast(cython.uint, entry.location)
            row.size = entry.size
            row.header_len = entry.header_len
            row.subject = known
            if entry.flags >> 1:
                any_packed = lengths[count] = entry.flags >> 1
            count += 1
        sequence = store.next_alive(sequence + 1)
    # What is not touched of them costs nothing, and nothing is copied to cut them.
    del rows[count * cython.sizeof(IndexRow) :]
    del packed[count * 4 if any_packed else 0 :]
    return list(used.items()), rows, packed


def index_of(store: FileStore, segment: StreamSegment, log_segment: int) -> IndexFile:
    """The index file of a segment, from the index in memory."""
    index = IndexFile(
        segment.number,
        segment.generation,
        store.stream_id,
        segment.created,
        segment.end,
        store.first_seq,
        store.durable_last,
        store.durable_ts,
        log_segment,
        bytes(segment.deletes),
        list(segment.lost),
    )
    index.subjects, index.entries, index.packed = index_rows(store, segment)
    return index


@cython.cfunc
@cython.exceptval(check=False)
def move_row(
    row: cython.pointer(IndexRow), other: cython.pointer(IndexRow), sign: cython.int
) -> cython.void:
    """Add what another row has, or take it away; the subject's number stays."""
    row.sequence += sign * other.sequence
    row.timestamp = cython.cast(
        cython.longlong,
        cython.cast(cython.ulonglong, row.timestamp)
        + sign * cython.cast(cython.ulonglong, other.timestamp),
    )
    row.offset += sign * other.offset
    row.size += sign * other.size
    row.header_len += sign * other.header_len


def differences(rows: bytes | bytearray | memoryview) -> tuple[bytearray, int]:
    """Rows less the row before each, all but the subject's number; and how many nanoseconds 1 is in
    their timestamps: 1000, if all are whole microseconds, or 1."""
    made: bytearray = bytearray(rows)
    row: cython.pointer(IndexRow) = cython.cast(
        cython.pointer(IndexRow), PyByteArray_AS_STRING(made)
    )
    count: cython.Py_ssize_t = PyByteArray_GET_SIZE(made) // cython.sizeof(IndexRow)
    unit: cython.longlong = 1000
    i: cython.Py_ssize_t
    for i in range(count):
        if row[i].timestamp % 1000:
            unit = 1
            break
    for i in range(count):
        row[i].timestamp //= unit
    for i in range(count - 1, 0, -1):
        move_row(cython.address(row[i]), cython.address(row[i - 1]), -1)
    return made, unit


def unpacked_rows(
    planes: bytes, at: cython.Py_ssize_t, length: cython.Py_ssize_t, unit: cython.longlong
) -> bytearray:
    """The rows whose `differences` lie in planes from `at` on, `length` bytes of whole rows. Raises
    ValueError when there are not so many."""
    if at < 0 or length < 0 or length % ROW or at + length > len(planes):
        raise ValueError("an index ends within its rows")
    made: bytearray = bytearray(length)
    source: cython.p_const_uchar = (
        cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(planes)) + at
    )
    to: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(made))
    plane: cython.Py_ssize_t
    i: cython.Py_ssize_t
    for plane in range(ROW):
        for i in range(length // ROW):
            to[ROW * i + plane] = source[i]
        source += length // ROW
    sum_up(made, unit)
    return made


@cython.cfunc
@cython.exceptval(check=False)
def sum_up(made: bytearray, unit: cython.longlong) -> cython.void:
    """Make rows of what `differences` made."""
    row: cython.pointer(IndexRow) = cython.cast(
        cython.pointer(IndexRow), PyByteArray_AS_STRING(made)
    )
    count: cython.Py_ssize_t = PyByteArray_GET_SIZE(made) // cython.sizeof(IndexRow)
    i: cython.Py_ssize_t
    for i in range(1, count):
        move_row(cython.address(row[i]), cython.address(row[i - 1]), 1)
    for i in range(count):
        row[i].timestamp *= unit
