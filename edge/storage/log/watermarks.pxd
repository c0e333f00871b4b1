# How far streams and the log had come. See watermarks.py.
from headwater.edge.storage.log.logged_store cimport LoggedStore

cdef struct Watermark:
    unsigned long long stream
    unsigned long long value
    unsigned int segment
    unsigned int end
    unsigned int flags
    unsigned int crc

cdef class Watermarks:
    cdef Watermark* watermarks
    cdef public unsigned int capacity
    cdef unsigned int used
    cdef list free
    cdef dict rows                      # stream id -> number of its watermark
    cdef object path
    cdef unsigned int seed
    cdef int fd
    cdef unsigned int low               # watermarks from `low` up to `high` are not written yet
    cdef unsigned int high
    cdef public dict found              # stream id -> (last sequence, whether it was synced)
    cdef public list positions             # (segment, end, batch) up to which all was synced, written
    cdef int raise_to(self, LoggedStore store, unsigned long long last, bint synced) except -1
    cdef int reach(self, unsigned int segment, Py_ssize_t end, unsigned long long batch, bint synced) except -1
    cdef int set(self, unsigned int row, unsigned long long stream, unsigned long long value, unsigned int segment, unsigned int end, unsigned int flags) except -1
    cdef unsigned int crc_of(self, unsigned int row) noexcept
    cdef int flush(self) except -1
