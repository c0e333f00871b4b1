# The batch of the commit log that is being filled. See batch_writer.py.
from headwater.edge.kernel.kernel cimport Kernel, Msg
from headwater.edge.storage.format.record cimport RecordHeader
from headwater.edge.storage.log.batch_runs cimport BatchRuns
from headwater.edge.storage.log.log_segment cimport LogSegment
from headwater.edge.storage.log.logged_store cimport LoggedStore

cdef enum:
    FOOTER_BYTES = 16               # of a footer's body, before its runs
    RUN_BYTES = 24                  # a run of messages in a footer

cdef class BatchWriter:
    cdef public Kernel kernel           # whose turns end batches
    cdef public unsigned int seed       # of every checksum of this node's store
    cdef public LogSegment active       # the segment that records go to; None before the start
    cdef unsigned long long batch       # number of the batch being filled
    cdef Py_ssize_t batch_start         # its offset in the active segment
    cdef Py_ssize_t batch_records       # records in it, footers not counted
    cdef BatchRuns runs                 # messages in this batch
    cdef unsigned int chain             # header checksum of the last record
    cdef unsigned long long written     # bytes of records so far
    cdef public dict stores             # stream id -> LoggedStore
    cdef list touched                   # LoggedStores with appends in this batch
    cdef long long batch_delay_ns       # how long the sync of this batch may wait
    cdef bint batch_strict              # an ack of this batch waits for its sync
    cdef bint batch_notify                # somebody waits for this batch to be written
    cdef public bint closed             # nothing is written any more
    cdef readonly Py_ssize_t newest_at  # offset of the last record in the active segment
    cdef unsigned int entry_segment     # that holds the entry which is applied; 0: none does
    cdef unsigned int entry_record      # offset of the record with it
    cdef unsigned int entry_at          # offset of the entry's first byte
    cdef LoggedStore adopter            # whose messages the segment holds already; None
    cdef unsigned char* adopted_at      # where the next of their records goes
    cdef unsigned char* adopted_end     # where the last one ends
    cdef public bint bundles            # whether gathered messages may stand in bundles
    cdef public bint stems              # whether what subjects share may stand once in a bundle
    cdef unsigned char[256] common      # subject of the newest bundle's first message
    cdef Py_ssize_t common_len          # bytes of it
    cdef Py_ssize_t common_front        # bytes of it that all of the bundle begin with
    cdef Py_ssize_t common_back         # bytes of it that all of the bundle end with
    cdef unsigned long long common_stream   # stream of that bundle; 0: nothing is known
    cdef Py_ssize_t bundle_at           # offset of the bundle that is open; 0: none is
    cdef unsigned char* bundle_begin    # where the records of its messages are, in memory
    cdef unsigned char* bundle_end      # and where they end
    cdef Py_ssize_t joined              # messages of this batch in bundles
    cdef unsigned long long likely      # stream whose bundle was worth it; 0
    cdef unsigned long long alone_stream    # of the last message with a record of its own
    cdef unsigned long long alone_sequence  # of that message
    cdef Py_ssize_t alone_end           # where that record ends
    cdef Py_ssize_t footer_room(self, Py_ssize_t more) noexcept
    cdef int finish(self, unsigned char* at, Py_ssize_t length) except -1
    cdef int write_footers(self, int flags, Py_ssize_t align, unsigned long long synced) except -1
    cdef int write_footer(self, int flags, Py_ssize_t align, unsigned long long synced) except -1
    cdef int next_batch(self) except -1
    cdef unsigned char* reserve(self, Py_ssize_t length, bint message)
    cdef unsigned long long write_message(self, LoggedStore store, Msg* m, long long timestamp, unsigned long long sequence) except 0
    cdef bint bundled_soon(self, LoggedStore store, Msg* m, long long timestamp, unsigned long long sequence) noexcept
    cdef bint continues(self, LoggedStore store, long long timestamp, unsigned long long sequence) noexcept
    cdef bint extend(self, Py_ssize_t need) except -1
    cdef unsigned long long write_bundled(self, LoggedStore store, Msg* m, long long timestamp, unsigned long long sequence) except 0
    cdef int open_bundle(self, LoggedStore store, Msg* m, Py_ssize_t length, long long timestamp, unsigned long long sequence) except -1
    cdef unsigned int share(self, RecordHeader* header, unsigned char* record) noexcept
    cdef int join_bundle(self, unsigned char* record) except -1
    cdef Py_ssize_t bundle_head(self) noexcept
    cdef int close_bundle(self) except -1
    cdef unsigned long long write_adopted(self, LoggedStore store, Msg* m, long long timestamp, unsigned long long sequence) except 0
    cdef bint adopt(self, LoggedStore store, unsigned int start, unsigned int length, Py_ssize_t need, unsigned long long first, unsigned long long last) except -1
    cdef int end_adoption(self) except -1
    cdef int touch(self, LoggedStore store) except -1
    cdef unsigned long long write_own(self, LoggedStore store, int kind, unsigned long long at, bytes body) except 0
    cdef int write_again(self, unsigned char* old) except -1
    cpdef unsigned long long write_record(self, int kind, unsigned long long stream, unsigned long long sequence, bytes first, bytes second, bytes rest, long long delay_ns=*, bytes more=*) except 0

cdef void fill_head(RecordHeader* header, unsigned long long stream, Msg* m, long long timestamp, unsigned long long sequence, Py_ssize_t length) noexcept nogil
cdef void fill_record(unsigned char* at, unsigned long long stream, Msg* m, long long timestamp, unsigned long long sequence) noexcept nogil
