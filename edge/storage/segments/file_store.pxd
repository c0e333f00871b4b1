# A stream's messages in log and segments. See file_store.py.
from headwater.edge.storage.log.commit_log cimport CommitLog
from headwater.edge.storage.index.index cimport IndexEntry
from headwater.edge.storage.log.logged_store cimport LoggedStore
from headwater.edge.storage.log.fresh_removals cimport FreshRemovals
from headwater.edge.storage.segments.segment_window cimport SegmentWindow
from headwater.edge.storage.segments.stream_segment cimport StreamSegment

cdef enum:
    BOTH_MAX = 1024                     # bytes; removals up to this size are written twice

cdef struct Removed:                    # sequences taken out during a turn
    unsigned long long first
    unsigned long long last

cdef class FileStore(LoggedStore):
    cdef CommitLog log
    cdef public object open_files       # segment_files.OpenFiles
    cdef public object on_trim          # called with paths of segment files that are not needed
    cdef public object on_compact       # called with a segment that is mostly dead
    cdef public object on_damage        # called with a sequence and what is wrong with it
    cdef public object repacker         # packs records of stale segments again; None
    cdef public Py_ssize_t segment_limit
    cdef public bint packs_index        # index files are written packed
    cdef public unsigned int first_log_segment       # log segment in which it came back from quarantine, or 0
    cdef public list segments           # StreamSegments, ascending
    cdef public list leaving            # segments whose files go away: others took their messages
    cdef public set gone_numbers              # numbers of such segments between those that are there
    cdef dict by_number
    cdef StreamSegment recent           # the last one that was looked up
    cdef public unsigned long long durable_last     # last_seq and last_ts as far as is durable in segments
    cdef public long long durable_ts
    cdef Removed* gone                  # removals of this turn
    cdef unsigned int gone_count
    cdef unsigned int gone_capacity
    cdef bint head_moved
    cdef unsigned long long passed      # last message that was taken out at the head for good
    cdef bint skipped
    cdef FreshRemovals fresh
    cdef list lost_now                  # sequences found damaged, not yet logged
    cdef readonly SegmentWindow window  # what was read last of segments
    cdef public object copy             # SegmentCopy of the checkpoint that is under way; None
    cdef Py_ssize_t segment_room(self) noexcept
    cdef unsigned long long safe_lsn(self) noexcept
    cdef StreamSegment segment_of(self, unsigned int number)
    cdef int add_gone(self, unsigned long long sequence) except -1
    cdef const unsigned char* read_record(self, unsigned long long sequence, const IndexEntry* entry)
    cdef const unsigned char* read_part(self, unsigned int number, Py_ssize_t offset, Py_ssize_t need)
    cdef int damage(self, unsigned long long sequence, str reason) except -1
    cpdef int advance_durable(self, unsigned long long last, long long last_ts) except -1
