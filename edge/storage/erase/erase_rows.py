"""Where the bytes of a stored message stand, for erasing it.

Asked for while the message is still in the index. A row is (sequence, timestamp, where, number of
the file, its generation, offset, bytes of the record). Of a message in a bundle of the log, the
generation is the offset of the bundle, and the bytes are those of head and body there.
"""

import cython
from cython.cimports.headwater.edge.storage.format.record import Bundled, RecordHeader, record_size
from cython.cimports.headwater.edge.storage.index.index import IN_LOG, IndexEntry
from cython.cimports.headwater.edge.storage.segments.file_store import FileStore
from cython.cimports.headwater.edge.storage.segments.segment_copy import SegmentCopy
from cython.cimports.headwater.edge.storage.segments.stream_segment import StreamSegment

IN_LOG_FILE = 0
IN_SEGMENT = 1
IN_BUNDLE = 2


def rows_of(store: FileStore, sequence: cython.ulonglong) -> list:
    """Every location of the message, that in the log first; none when it is not stored. Also wipes
    what the store's read buffer holds of it."""
    entry: cython.pointer(cython.const[IndexEntry]) = store.at(sequence)
    header: cython.pointer(RecordHeader)
    size: cython.Py_ssize_t
    copy: SegmentCopy
    rows: list = []
    if entry == cython.NULL:
        return rows
    size = record_size(store.body_length(entry))
    store.packer.wipe()
    if not entry.flags & IN_LOG:
        rows.append(segment_row(store, sequence, entry.timestamp, entry.location, size))
        return rows
    header = cython.cast(cython.pointer(RecordHeader), entry.location)
    if header.offset and not header.magic:
        rows.append(
            (
                sequence,
                entry.timestamp,
                IN_BUNDLE,
                header.segment,
                header.chain,
                header.offset,
                cython.sizeof(Bundled)
                + header.length
                - header.header_crc
                + 2 * (header.header_len > 0),
            )
        )
    elif header.offset:  # of a message in an entry the log has no record
        rows.append(
            (
                sequence,
                entry.timestamp,
                IN_LOG_FILE,
                header.segment,
                0,
                header.offset,
                record_size(header.length),
            )
        )
    if store.copy is not None:
        copy = store.copy
        size = record_size(header.length)
        for i in range(copy.published, copy.count):
            if copy.rows[i].sequence == sequence and copy.rows[i].old == entry.location:
                rows.append(segment_row(store, sequence, entry.timestamp, copy.rows[i].new, size))
    return rows


@cython.cfunc
def segment_row(
    store: FileStore,
    sequence: cython.ulonglong,
    timestamp: cython.longlong,
    location: cython.ulonglong,
    size: cython.Py_ssize_t,
) -> tuple:
    """A row for a location in a segment; a rewrite of the segment that is under way starts
    again."""
    number: cython.uint = cython.cast(cython.uint, location >> 32)
    segment: StreamSegment = store.segment_of(number)
    if segment is None:
        return (sequence, timestamp, IN_SEGMENT, number, 0, location & 0xFFFFFFFF, size)
    if segment.busy:
        segment.erased = True
    store.window.wipe(number)
    return (
        sequence,
        timestamp,
        IN_SEGMENT,
        number,
        segment.generation,
        location & 0xFFFFFFFF,
        size,
    )


def names_subject(store: FileStore, sequence: cython.ulonglong) -> bool:
    """Whether the index file of a message's segment would name its subject for it alone: no
    neighbour of the same subject is served from the same segment."""
    entry: cython.pointer(cython.const[IndexEntry]) = store.at(sequence)
    other: cython.pointer(cython.const[IndexEntry])
    if entry == cython.NULL or entry.flags & IN_LOG:
        return False
    for near in (store.precede(sequence, entry), store.follow(sequence, entry)):
        if near:
            other = store.at(near)
            if (
                other != cython.NULL
                and not other.flags & IN_LOG
                and other.location >> 32 == entry.location >> 32
            ):
                return False
    return True
