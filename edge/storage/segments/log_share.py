"""What of the log a stream needs: records that are in none of its segments yet."""

import cython
from cython.cimports.headwater.edge.storage.format.record import record_size
from cython.cimports.headwater.edge.storage.index.index import IN_LOG, IndexEntry
from cython.cimports.headwater.edge.storage.segments.file_store import FileStore

# What a message takes in an index file at most, its subject's text not counted.
INDEX_BYTES = cython.declare(cython.Py_ssize_t, 48)


def log_share(store: FileStore) -> int:
    """Bytes that these messages will take in segments and indexes. Looks at each of them."""
    entry: cython.pointer(cython.const[IndexEntry])
    sequence: cython.ulonglong = store.last_seq
    oldest: cython.ulonglong = max(store.durable_last + 1, store.first_seq)
    total: cython.Py_ssize_t = 0
    while sequence >= oldest:
        entry = store.at(sequence)
        if entry != cython.NULL and entry.flags & IN_LOG:
            total += record_size(store.body_length(entry)) + INDEX_BYTES
        sequence -= 1
    return total


def last_of(store: FileStore, size: int) -> int:
    """The last of the oldest messages whose records take `size` bytes together."""
    entry: cython.pointer(cython.const[IndexEntry])
    sequence: cython.ulonglong = store.first_seq
    left: cython.Py_ssize_t = size
    while sequence < store.last_seq:
        entry = store.at(sequence)
        if entry != cython.NULL:
            left -= record_size(store.body_length(entry))
            if left <= 0:
                break
        sequence += 1
    return sequence
