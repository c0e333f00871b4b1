# What a checkpoint copies of one stream. See segment_copy.py.
from headwater.edge.storage.segments.file_store cimport FileStore
from headwater.edge.storage.segments.segment_builder cimport SegmentBuilder

cdef struct CopiedRow:                  # a message that is being copied from the log to a segment
    unsigned long long sequence
    unsigned long long old              # its address in the log
    unsigned long long new              # number of the segment, and offset in its file
    Py_ssize_t size                     # bytes of its record

cdef class SegmentCopy:
    cdef readonly FileStore store
    cdef unsigned long long last        # last_seq and last_ts of the stream as far as is copied
    cdef long long last_ts
    cdef SegmentBuilder builder         # what is being built now; None
    cdef readonly list builders         # those that are complete, in the order to write them in
    cdef CopiedRow* rows
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef Py_ssize_t published           # rows that the index points at
    cdef int add_message(self, const unsigned char* record, unsigned int log_segment) except -1
    cdef int add_removals(self, int kind, const unsigned char* record) except -1
    cdef int advance(self, unsigned long long last, long long last_ts) except -1
    cdef int begin_builder(self) except -1
    cdef int add_footer(self, unsigned int log_segment) except -1
    cdef int close_builder(self, unsigned int log_segment) except -1
    cdef Py_ssize_t publish(self, Py_ssize_t limit) except -1
