"""A segment of the commit log, with its image in memory.

Records are encoded at their final place in the image, written to the file from there, and served
from there until the segment is checkpointed.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.headwater.edge.storage.format.record import (
    FILE_HEADER_BYTES,
    HEADER_BYTES,
    RecordHeader,
    record_size,
)
from cython.cimports.headwater.edge.storage.log.adopted_records import AdoptedRecords
from cython.cimports.headwater.edge.storage.log.aligned_memory import (
    aligned_memory,
    free_aligned,
    shrink_aligned,
)
from cython.cimports.libc.string import memcpy, memset

from headwater.edge.ports import files


@cython.cclass
class LogSegment:
    """Owns the image, not the file."""

    def __init__(self, number: int, slot: object, donor: LogSegment | None = None):
        """`donor` is a segment that is over; its memory is used again when it has the size."""
        self.number = number
        self.slot = slot
        self.fd = slot.fd
        self.direct_fd = slot.direct
        self.capacity = slot.capacity
        if donor is not None and donor.capacity == self.capacity:
            self.image = donor.image
            donor.image = cython.NULL
        if donor is not None and donor.adopted is not None:
            self.adopted = AdoptedRecords(self.capacity, donor.adopted)
        if self.image == cython.NULL:
            self.image = aligned_memory(self.capacity)

    def __dealloc__(self):
        free_aligned(self.image, self.capacity)

    @cython.cfunc
    def adoptable(self) -> AdoptedRecords:
        """Where records of messages go that the file holds in bundles or entries."""
        if self.adopted is None:
            self.adopted = AdoptedRecords(self.capacity)
        return self.adopted

    def fill(self, data: bytes, offset: cython.Py_ssize_t) -> None:
        """Put bytes into the image."""
        if offset < 0 or offset + len(data) > self.capacity:
            raise ValueError("outside of the segment")
        memcpy(self.image + offset, PyBytes_AS_STRING(data), len(data))

    def write_header(self) -> None:
        """Make the header durable ahead of any record. Raises OSError."""
        files.write_all(self.fd, self.bytes_at(0, FILE_HEADER_BYTES), 0)
        files.sync_data(self.fd)

    def read_file(self) -> list[tuple[int, int]]:
        """Fill the image from the file; returns what of it cannot be read."""
        unreadable: list = []
        at = 0
        while at < self.capacity:
            data, bad = files.read_parts(self.fd, min(self.capacity - at, 1 << 20), at)
            unreadable += bad
            if not data:
                break
            self.fill(data, at)
            at += len(data)
        self.wipe(at)
        return unreadable

    def shrink(self) -> None:
        """Give back the memory behind `end`; nothing points into the image yet."""
        smaller: cython.p_uchar = shrink_aligned(self.image, self.capacity, self.end)
        if smaller != cython.NULL:
            self.image = smaller
            self.capacity = self.end

    def wipe(self, start: cython.Py_ssize_t) -> None:
        """Overwrite the image from `start` on: nothing that counts stands there."""
        if self.image != cython.NULL and 0 <= start < self.capacity:
            memset(self.image + start, 0, self.capacity - start)

    def wipe_record(self, bundle: int, sequence: int) -> None:
        """Overwrite what is in memory of a message in the bundle at that offset."""
        header: cython.pointer(RecordHeader)
        at: cython.ulonglong = 0
        end: cython.ulonglong = 0
        if self.adopted is not None:
            at, end = self.adopted.ranges.get(bundle, (0, 0))
        while at < end:
            header = cython.cast(cython.pointer(RecordHeader), at)
            if header.sequence == sequence:
                memset(cython.cast(cython.p_uchar, at) + HEADER_BYTES, 0, header.length)
            at += record_size(header.length)

    def bytes_at(self, offset: cython.Py_ssize_t, length: cython.Py_ssize_t) -> bytes:
        """A copy of a part of the image."""
        if offset < 0 or length < 0 or offset + length > self.capacity:
            raise ValueError("outside of the segment")
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, self.image + offset), length)
