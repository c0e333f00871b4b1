"""What a start enters into a store: messages that it finds, runs of them that were removed, and how
far the stream had come. Nothing of it is written or told to anybody.
"""

import cython
from cython.cimports.headwater.edge.storage.format.record import record_size
from cython.cimports.headwater.edge.storage.index.index import IN_LOG, IndexEntry
from cython.cimports.headwater.edge.storage.segments.file_store import FileStore
from cython.cimports.headwater.edge.storage.segments.stream_segment import StreamSegment


@cython.cfunc
@cython.exceptval(-1, check=False)
def restore_message(
    store: FileStore,
    subject: cython.p_const_uchar,
    n: cython.Py_ssize_t,
    sequence: cython.ulonglong,
    timestamp: cython.longlong,
    size: cython.uint,
    header_len: cython.uint,
    location: cython.ulonglong,
    flags: cython.uint,
) -> cython.int:
    """Enter a message; 0 when its sequence is not above all others. `location` and `flags` are
    those of its index entry."""
    entry: cython.pointer(IndexEntry)
    number: cython.uint
    segment: StreamSegment
    if sequence <= store.last_seq:
        return 0
    number = store.names.intern(subject, n)
    entry = store.prepare(sequence)
    entry.location = location
    entry.flags = flags
    entry.timestamp = timestamp
    entry.size = size
    entry.header_len = header_len
    store.usage.bytes += store.cost(number, entry)
    store.add(sequence, number, entry)
    if not flags & IN_LOG:
        segment = store.segment_of(cython.cast(cython.uint, location >> 32))
        segment.live += 1
        segment.live_bytes += record_size(store.body_length(entry))
        if segment.first == 0:
            segment.first = sequence
        segment.last = sequence
    return 1


def restore_removal(store: FileStore, first: int, last: int) -> None:
    """A run of sequences was removed, first and last included."""
    entry: cython.pointer(cython.const[IndexEntry])
    at: cython.ulonglong = store.next_alive(first)
    while at and at <= last:
        entry = store.at(at)
        store.free_location(entry)
        store.usage.bytes -= store.cost(entry.subject, entry)
        store.drop(at)
        at = store.next_alive(at + 1)


def restore_ends(store: FileStore, first: int, last: int, last_ts: int) -> None:
    """Nothing is stored before `first`, and `last` was the last sequence; `last_ts` in ns."""
    if first > store.first_seq:
        restore_removal(store, 0, first - 1)
    if last > store.last_seq:
        store.last_seq = last
    if last_ts > store.last_ts:
        store.last_ts = last_ts
    if store.messages == 0:
        store.first_seq = max(first, store.last_seq + 1)
    elif first > store.first_seq:
        store.move_first(first)
    store.committed = store.last_seq
