from headwater.edge.storage.format.record cimport RecordHeader
from headwater.edge.kernel.kernel cimport Task
from headwater.edge.storage.log.commit_log cimport CommitLog
from headwater.edge.storage.segments.file_store cimport FileStore
from headwater.edge.storage.segments.segment_copy cimport SegmentCopy
from headwater.edge.storage.log.log_segment cimport LogSegment

cdef class Checkpointer(Task):
    cdef CommitLog log
    cdef object background
    cdef LogSegment segment             # being checkpointed; None
    cdef public str step                # "idle", "copy", "write", "publish", "commit"
    cdef Py_ssize_t at
    cdef public object on_copied        # called with the stores that wrote to segments; None
    cdef public object on_done          # called when a segment was given back; None
    cdef public object on_write         # called before the background is asked to write; None
    cdef list stores                    # touched by this segment
    cdef list copies                    # SegmentCopy of each of them that is being copied
    cdef SegmentCopy copy               # of the record looked at last
    cdef bint at_once                   # room was given back for what failed
    cdef list undo                      # (path, offset) of what a failed attempt left in files
    cdef list jobs                      # copies that are written, then published
    cdef public bint stopped
    cdef public unsigned int before       # checkpoint all segments below this number, and no others; 0: as usual
    cdef public double retry_delay
    cdef public int failures             # attempts that failed since one succeeded
    cdef dict say_at                    # {sentence: when it is said next, by the clock of the loop}
    cdef public unsigned long long done
    cdef Py_ssize_t copied_end          # where the record ended that was copied last, and what it was
    cdef int copied_kind
    cdef unsigned long long copied_stream
    cdef unsigned long long copied_sequence
    cdef unsigned int copied_crc
    cdef int copy_adopted(self, RecordHeader* header) except -1
    cdef bint is_again(self, const unsigned char* record) except -1
    cdef int copy_slice(self, Py_ssize_t limit) except -1
    cdef int add_store(self, FileStore store) except -1
