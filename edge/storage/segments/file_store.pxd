# A stream's messages in log and segments. See file_store.py.
from headwater.edge.storage.log.batch_runs cimport BatchRuns
from headwater.edge.storage.log.commit_log cimport CommitLog
from headwater.edge.storage.index.index cimport IndexEntry
from headwater.edge.storage.log.logged_store cimport LoggedStore
from headwater.edge.storage.format.record cimport RecordHeader
from headwater.edge.storage.segments.segment_builder cimport SegmentBuilder
from headwater.edge.storage.segments.stream_segment cimport StreamSegment

cdef struct Copied:                     # a message that is being copied from the log to a segment
    unsigned long long sequence
    unsigned long long old
    unsigned long long new
    Py_ssize_t size                     # bytes of its record

cdef struct Removed:                    # sequences taken out during a turn
    unsigned long long first
    unsigned long long last

cdef class FileStore(LoggedStore):
    cdef CommitLog log
    cdef public object directory        # pathlib.Path of the stream
    cdef public object open_files       # segment_files.OpenFiles
    cdef public object on_trim          # called with paths of segment files that are not needed
    cdef public object on_compact       # called with a segment that is mostly dead
    cdef public object on_damage        # called with a sequence and what is wrong with it
    cdef public object repacker         # packs records of stale segments again; None
    cdef public Py_ssize_t segment_limit
    cdef public unsigned int first_log_segment       # log segment in which it came back from quarantine, or 0
    cdef public list segments           # StreamSegments, ascending
    cdef public list leaving            # segments whose files go away: others took their messages
    cdef public set gone_numbers              # numbers of such segments between those that are there
    cdef dict by_number
    cdef StreamSegment recent           # the last one that was looked up
    cdef public unsigned long long copied_last     # last_seq and last_ts as far as was copied
    cdef public long long copied_ts
    cdef public unsigned long long durable_last     # the same as far as is durable in segments
    cdef public long long durable_ts
    cdef Removed* gone                  # removals of this turn
    cdef unsigned int gone_count
    cdef unsigned int gone_capacity
    cdef bint head_moved
    cdef unsigned long long passed      # last message that was taken out at the head for good
    cdef bint skipped
    cdef list lost_now                  # sequences found damaged, not yet logged
    cdef unsigned char* window          # bytes of a segment read last
    cdef Py_ssize_t window_capacity
    cdef Py_ssize_t window_length
    cdef unsigned int window_segment
    cdef Py_ssize_t window_start
    cdef bint window_used
    cdef SegmentBuilder builder                    # what is being built now; None
    cdef list builders                    # those before it
    cdef Copied* copied
    cdef Py_ssize_t copied_count
    cdef Py_ssize_t copied_capacity
    cdef Py_ssize_t published
    cdef public bint copying
    cdef unsigned long long checkpoint    # the checkpointer's attempt that met it last
    cdef StreamSegment segment_of(self, unsigned int number)
    cdef int add_gone(self, unsigned long long sequence) except -1
    cdef const unsigned char* read_record(self, unsigned long long sequence, IndexEntry* entry)
    cdef int fill_window(self, unsigned int number, Py_ssize_t offset, Py_ssize_t need) except -1
    cdef int damage(self, unsigned long long sequence, str reason) except -1
    cdef int copy_message(self, const unsigned char* record, unsigned int log_segment) except -1
    cdef int copy_deletes(self, int kind, const unsigned char* record) except -1
    cdef int begin_builder(self) except -1
    cdef int add_footer(self, unsigned int log_segment) except -1
    cdef int close_builder(self, unsigned int log_segment) except -1
    cpdef int move_copied(self, unsigned long long last, long long last_ts) except -1
    cdef Py_ssize_t publish(self, Py_ssize_t limit) except -1
    cdef int restore(self, const unsigned char* subject, Py_ssize_t n, unsigned long long sequence, long long timestamp, unsigned int size, unsigned int header_len, unsigned long long location, unsigned int flags) except -1
