# What is on its way from the log to one segment. See segment_builder.py.
from headwater.edge.storage.log.batch_runs cimport BatchRuns
from headwater.edge.storage.format.record cimport RecordHeader
from headwater.edge.storage.segments.stream_segment cimport StreamSegment

cdef class SegmentBuilder:
    cdef public StreamSegment segment
    cdef public Py_ssize_t offset       # where it goes in the segment's file
    cdef public Py_ssize_t length       # bytes so far, of the file's header too where it begins one
    cdef public unsigned int chain      # checksum of the last record, once it is built
    cdef unsigned int seed
    cdef bytes head                     # header of a new file; b""
    cdef const unsigned char** records  # in the log's images, or in `own`
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef Py_ssize_t largest             # bytes of the largest record
    cdef Py_ssize_t filled              # bytes that are gathered and not yet written
    cdef list own                       # records that are not copies: bytes
    cdef BatchRuns runs
    cdef Py_ssize_t end(self) noexcept
    cdef int add(self, const unsigned char* record) except -1
    cdef int add_own(self, RecordHeader* header, bytes body) except -1
    cdef int write(self, int fd, unsigned char* piece, Py_ssize_t room) noexcept nogil
    cdef unsigned int seal(
        self, RecordHeader* record, unsigned char* out, Py_ssize_t position, unsigned int chain
    ) noexcept nogil
    cdef int put(self, int fd, unsigned char* piece, Py_ssize_t end) noexcept nogil
