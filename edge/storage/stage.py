"""What is on its way from a retired log segment to one segment of a stream.

The event loop only notes which records go there, and where each will stand. The background thread
copies them, without the GIL: the log segment stays as it is until all of it is durable elsewhere.
Nobody may overwrite a noted record before that (see `is_staged` of the eraser).
"""

import cython
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.headwater.edge.storage.batch_runs import BatchRuns
from cython.cimports.headwater.edge.storage.crc import crc32c
from cython.cimports.headwater.edge.storage.record import (
    HEADER_BYTES,
    RecordHeader,
    record_size,
    seal_header,
)
from cython.cimports.headwater.edge.storage.stream_segment import StreamSegment
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.libc.string import memcpy, memset


@cython.cclass
class Stage:
    """Records for the end of one segment, in order."""

    def __init__(self, segment: StreamSegment, seed: int, head: bytes):
        self.segment = segment
        self.seed = seed
        self.head = head
        self.offset = segment.end
        self.length = len(head)
        self.own = []
        self.runs = BatchRuns()

    def __dealloc__(self):
        free(self.records)

    @cython.cfunc
    @cython.exceptval(check=False)
    def end(self) -> cython.Py_ssize_t:
        """Where the next record will stand in the file."""
        return self.offset + self.length

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add(self, record: cython.p_const_uchar) -> cython.int:
        """Note a record that stays where it is until this is built."""
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
        grown: cython.p_void
        if self.count == self.capacity:
            capacity: cython.Py_ssize_t = self.capacity * 2 or 256
            grown = realloc(self.records, capacity * cython.sizeof(cython.p_const_uchar))
            if grown == cython.NULL:
                raise MemoryError
            self.records = cython.cast(cython.pointer(cython.p_const_uchar), grown)
            self.capacity = capacity
        self.records[self.count] = record
        self.count += 1
        self.length += record_size(header.length)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add_own(self, header: cython.pointer(RecordHeader), body: bytes) -> cython.int:
        """Note a record made of a header's fields and another body."""
        record: bytes = PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, header), HEADER_BYTES
        )
        own: cython.pointer(RecordHeader)
        record += body
        own = cython.cast(cython.pointer(RecordHeader), PyBytes_AS_STRING(record))
        own.length = cython.cast(cython.uint, len(body))
        own.body_crc = crc32c(
            0, cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(body)), len(body)
        )
        self.own.append(record)
        return self.add(cython.cast(cython.p_const_uchar, own))

    def build(self) -> bytearray:
        """What is to be written at `offset` (in the background). Raises ValueError when a record
        is not what was noted."""
        head: cython.Py_ssize_t = len(self.head)
        data: bytearray = PyByteArray_FromStringAndSize(cython.NULL, self.length)
        out: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(data))
        whole: cython.bint
        memcpy(out, PyBytes_AS_STRING(self.head), head)
        with cython.nogil:
            whole = self.write(out + head, self.offset + head, self.length - head)
        if not whole:
            raise ValueError("records changed on their way to a segment")
        return data

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def write(
        self, out: cython.p_uchar, place: cython.Py_ssize_t, room: cython.Py_ssize_t
    ) -> cython.bint:
        """Put the records at `out`, each sealed for its place from `place` on; whether they take
        all of `room`."""
        header: cython.pointer(RecordHeader)
        i: cython.Py_ssize_t
        used: cython.Py_ssize_t
        size: cython.Py_ssize_t
        chain: cython.uint = self.segment.chain
        for i in range(self.count):
            header = cython.cast(cython.pointer(RecordHeader), self.records[i])
            used = HEADER_BYTES + header.length
            size = record_size(header.length)
            if size > room:
                return False
            memcpy(out, header, used)
            memset(out + used, 0, size - used)
            header = cython.cast(cython.pointer(RecordHeader), out)
            header.segment = self.segment.number
            header.offset = cython.cast(cython.uint, place)
            header.chain = chain
            seal_header(header, self.seed)
            chain = header.header_crc
            out += size
            place += size
            room -= size
        self.chain = chain
        return room == 0
