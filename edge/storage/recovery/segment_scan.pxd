# Recovery's reading of segments. See segment_scan.py.
from headwater.edge.storage.segments.file_store cimport FileStore
from headwater.edge.storage.segments.stream_segment cimport StreamSegment

cdef class SegmentScan:
    cdef FileStore store
    cdef StreamSegment segment
    cdef public list problems
    cdef public list gaps               # [last sequence before, first one behind] damaged footers
    cdef object last_removals           # (kind, body) of the last removals
    cdef set erased                     # sequences of the batch that were erased
    cdef public unsigned long long first_seq
    cdef public unsigned long long last_seq
    cdef public long long last_ts
    cdef public unsigned int log_segment
    cdef int apply(self, const unsigned char* data, list offsets) except -1
    cdef int apply_message(self, const unsigned char* record, Py_ssize_t at) except -1
    cdef int finish_batch(self, const unsigned char* record, list offsets, const unsigned char* data, Py_ssize_t damaged) except -1
