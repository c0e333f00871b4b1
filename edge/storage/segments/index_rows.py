"""Rows of index files: what one segment of a stream holds, taken from the index in memory."""

import cython
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
from cython.cimports.headwater.edge.storage.index.index import IN_LOG, IndexEntry
from cython.cimports.headwater.edge.storage.segments.file_store import FileStore
from cython.cimports.headwater.edge.storage.segments.stream_segment import StreamSegment

from headwater.edge.storage.segments.segment_files import IndexFile


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
