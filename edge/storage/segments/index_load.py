"""Entering what an index file lists into a store, in bulk.

A start of ten million messages spends its time here: a row costs no lookup of its subject's text
and no Python object.
"""

import cython
from cython.cimports.headwater.edge.storage.format.record import record_size
from cython.cimports.headwater.edge.storage.index.index import IndexEntry
from cython.cimports.headwater.edge.storage.segments.file_store import FileStore
from cython.cimports.headwater.edge.storage.segments.index_rows import IndexRow
from cython.cimports.headwater.edge.storage.segments.stream_segment import StreamSegment
from cython.cimports.libc.stdlib import calloc, free
from cython.cimports.libc.string import memcpy

from headwater.edge.storage.segments.segment_files import IndexFile


@cython.cclass
class Subjects:
    """The subjects of one index file: their numbers there, and in the store once one is used."""

    numbers: cython.p_uint
    positions: cython.p_uint
    size: cython.uint
    texts: list

    def __cinit__(self, rows: list):
        """`rows` as in IndexFile.subjects. Raises MemoryError."""
        i: cython.uint
        number: cython.uint
        self.texts = [row[1] for row in rows]
        self.size = max([row[0] for row in rows], default=0) + 1
        self.numbers = cython.cast(cython.p_uint, calloc(self.size, cython.sizeof(cython.uint)))
        self.positions = cython.cast(cython.p_uint, calloc(self.size, cython.sizeof(cython.uint)))
        if self.numbers == cython.NULL or self.positions == cython.NULL:
            raise MemoryError
        for i in range(len(rows)):
            number = rows[i][0]
            self.positions[number] = i + 1

    def __dealloc__(self):
        free(self.numbers)
        free(self.positions)

    @cython.cfunc
    @cython.exceptval(0, check=False)
    def number(self, store: FileStore, listed: cython.uint) -> cython.uint:
        """The store's number of a subject, given one when a message of it is first entered."""
        text: bytes
        if listed >= self.size or self.positions[listed] == 0:
            raise KeyError(f"the index has no subject {listed}")
        if self.numbers[listed] == 0:
            text = self.texts[self.positions[listed] - 1]
            self.numbers[listed] = store.names.intern(text, len(text))
        return self.numbers[listed]


@cython.cfunc
@cython.exceptval(-1, check=False)
def enter_rows(
    store: FileStore,
    segment: StreamSegment,
    subjects: Subjects,
    rows: cython.p_const_uchar,
    lengths: cython.p_const_uchar,
    count: cython.Py_ssize_t,
) -> cython.int:
    """Enter `count` rows; `lengths` are those of packed bodies (u32 each), NULL when all are
    plain. Rows whose sequence is not above all others are passed over."""
    row: IndexRow
    entry: cython.pointer(IndexEntry)
    number: cython.uint
    length: cython.uint = 0
    base: cython.ulonglong = cython.cast(cython.ulonglong, segment.number) << 32
    live: cython.ulonglong = 0
    live_bytes: cython.ulonglong = 0
    before: cython.ulonglong = store.bytes
    i: cython.Py_ssize_t
    for i in range(count):
        # Not aligned: what is before the rows in the file has any length.
        memcpy(cython.address(row), rows + i * cython.sizeof(IndexRow), cython.sizeof(IndexRow))
        if row.sequence <= store.last_seq:
            continue
        number = subjects.number(store, row.subject)
        entry = store.prepare(row.sequence)
        if lengths != cython.NULL:
            memcpy(cython.address(length), lengths + 4 * i, 4)
        entry.location = base | row.offset
        entry.flags = length << 1
        entry.timestamp = row.timestamp
        entry.size = row.size
        entry.header_len = row.header_len
        store.add(row.sequence, number, entry)
        live += 1
        live_bytes += record_size(store.body_length(entry))
        if segment.first == 0:
            segment.first = row.sequence
        segment.last = row.sequence
    segment.live += live
    segment.live_bytes += live_bytes
    store.usage.bytes += store.bytes - before
    return 0


def load_index(store: FileStore, segment: StreamSegment, index: IndexFile) -> None:
    """Enter what the index file of a segment lists."""
    subjects: Subjects = Subjects(index.subjects)
    entries: cython.const[cython.uchar][::1] = index.entries
    packed: cython.const[cython.uchar][::1] = index.packed
    lengths: cython.p_const_uchar = cython.NULL
    count: cython.Py_ssize_t = len(index.entries) // cython.sizeof(IndexRow)
    if count and len(index.packed):
        lengths = cython.address(packed[0])
    if count:
        enter_rows(
            store,
            segment,
            subjects,
            cython.address(entries[0]),
            lengths,
            count,
        )
    segment.end = index.data_end
    segment.deletes = bytearray(index.deletes)
    segment.lost = index.lost
    segment.indexed = True
