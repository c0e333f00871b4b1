"""What is on its way from a log segment to one segment of a stream.

The event loop only lists which records go there, and where each will stand. The background thread
copies them, without the GIL: the log segment stays as it is until all of it is durable elsewhere.
Nobody may overwrite a listed record before that (see `is_being_copied` of the eraser).
"""

import os

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.headwater.edge.storage.device.file_calls import write_some
from cython.cimports.headwater.edge.storage.format.crc import crc32c
from cython.cimports.headwater.edge.storage.format.record import (
    HEADER_BYTES,
    RecordHeader,
    record_size,
    seal_header,
)
from cython.cimports.headwater.edge.storage.log.batch_runs import BatchRuns
from cython.cimports.headwater.edge.storage.segments.stream_segment import StreamSegment
from cython.cimports.libc.errno import EINTR, EIO
from cython.cimports.libc.stdlib import free, malloc, realloc
from cython.cimports.libc.string import memcpy, memset

from headwater.edge.ports import files

# Bytes that are gathered before they are written.
PIECE_BYTES = cython.declare(cython.Py_ssize_t, 256 << 10)
# Instead of an errno: a record is not what was listed.
CHANGED = cython.declare(cython.int, -1)


@cython.cclass
class SegmentBuilder:
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
        """List a record that stays where it is until this is built."""
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
        self.largest = max(self.largest, record_size(header.length))
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add_own(self, header: cython.pointer(RecordHeader), body: bytes) -> cython.int:
        """List a record made of a header's fields and another body."""
        record: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, header), HEADER_BYTES)
        own: cython.pointer(RecordHeader)
        record += body
        own = cython.cast(cython.pointer(RecordHeader), PyBytes_AS_STRING(record))
        own.length = cython.cast(cython.uint, len(body))
        own.body_crc = crc32c(
            0, cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(body)), len(body)
        )
        self.own.append(record)
        return self.add(cython.cast(cython.p_const_uchar, own))

    def save(self, fd: int) -> None:
        """Write all of it to the segment's file (in the background), in pieces that stay in the
        processor's cache. Raises OSError, and ValueError when a record is not what was listed."""
        room: cython.Py_ssize_t = max(PIECE_BYTES, len(self.head) + self.largest)
        piece: cython.p_uchar = cython.cast(cython.p_uchar, malloc(room))
        file: cython.int = fd
        error: cython.int
        if piece == cython.NULL:
            raise MemoryError
        try:
            files.claim(fd, self.offset + self.length)
            memcpy(piece, PyBytes_AS_STRING(self.head), len(self.head))
            self.filled = len(self.head)
            with cython.nogil:
                error = self.write(file, piece, room)
        finally:
            free(piece)
        if error == CHANGED:
            raise ValueError("records changed on their way to a segment")
        if error:
            raise OSError(error, os.strerror(error), str(self.segment.path))

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def write(self, fd: cython.int, piece: cython.p_uchar, room: cython.Py_ssize_t) -> cython.int:
        """Write what `piece` begins with and the records, each sealed for its position; 0, an
        errno, or CHANGED."""
        header: cython.pointer(RecordHeader)
        i: cython.Py_ssize_t
        size: cython.Py_ssize_t
        error: cython.int
        position: cython.Py_ssize_t = self.offset + self.filled
        end: cython.Py_ssize_t = self.offset + self.length
        chain: cython.uint = self.segment.chain
        for i in range(self.count):
            header = cython.cast(cython.pointer(RecordHeader), self.records[i])
            size = record_size(header.length)
            if size > self.largest or position + size > end:
                return CHANGED
            if self.filled + size > room:
                error = self.put(fd, piece, position)
                if error:
                    return error
            chain = self.seal(header, piece + self.filled, position, chain)
            self.filled += size
            position += size
        self.chain = chain
        return self.put(fd, piece, position) if position == end else CHANGED

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def seal(
        self,
        record: cython.pointer(RecordHeader),
        out: cython.p_uchar,
        position: cython.Py_ssize_t,
        chain: cython.uint,
    ) -> cython.uint:
        """Put a record at `out`, made for its position; returns its checksum."""
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), out)
        used: cython.Py_ssize_t = HEADER_BYTES + record.length
        memcpy(out, record, used)
        memset(out + used, 0, record_size(record.length) - used)
        header.segment = self.segment.number
        header.offset = cython.cast(cython.uint, position)
        header.chain = chain
        seal_header(header, self.seed)
        return header.header_crc

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put(self, fd: cython.int, piece: cython.p_uchar, end: cython.Py_ssize_t) -> cython.int:
        """Write what was gathered, which ends at a position in the file; 0, or an errno."""
        done: cython.Py_ssize_t = 0
        n: cython.Py_ssize_t
        while done < self.filled:
            n = write_some(fd, piece + done, self.filled - done, end - self.filled + done)
            if n == 0:
                return EIO
            if n > 0:
                done += n
            elif n != -EINTR:
                return cython.cast(cython.int, -n)
        self.filled = 0
        return 0
