# How far a consumer is, and what it waits for. See consumer.py; it runs as a Delivery (delivery.pxd).
from headwater.edge.broker.account cimport Account
from headwater.edge.kernel.kernel cimport Kernel
from headwater.edge.jetstream.progress.delta cimport Delta, Position
from headwater.edge.jetstream.progress.pending cimport PendingEntry, PendingTable
from headwater.edge.jetstream.stream.stream cimport Stream
from headwater.edge.jetstream.stream.stream_observer cimport StreamObserver
from headwater.edge.storage.index.filter cimport Filter
from headwater.edge.storage.index.store cimport MessageStore

cdef enum:
    ACK_NONE = 0
    ACK_ALL = 1
    ACK_EXPLICIT = 2
    ACK_FLOW = 3

cdef class Consumer(StreamObserver):
    cdef public str name                # as its configuration says
    cdef public bytes name_bytes        # the same, for subjects
    cdef public Stream stream           # whose messages it delivers
    cdef public object config           # models.ConsumerConfig
    cdef public long long created_ns    # ns since the Unix epoch
    cdef public bint deleted            # delivers nothing and takes no acks any more
    cdef Kernel kernel                  # of the node
    cdef Account account                # whose subjects it uses
    cdef MessageStore store             # of the stream
    cdef Filter filter                  # None matches everything
    cdef Position at                    # how far it is: sequences and times, see delta.pxd
    cdef public PendingTable pending    # what was delivered and is not acknowledged
    cdef public dict exhausted          # sequence -> deliveries, of messages at max_deliver
    cdef int ack_policy                 # one of ACK_*
    cdef long long ack_wait             # ns, 0 for ever
    cdef long long* backoff             # ns, by number of deliveries
    cdef int backoff_count              # rows of `backoff`
    cdef long long max_deliver          # 0: no limit
    cdef long long max_ack_pending      # 0: no limit
    cdef int sample_percent             # of acks that are told as metrics, 0 to 100
    cdef long long wall_offset          # wall clock minus monotonic clock, ns
    cdef public bytes ack_event         # subjects of advisories and metrics
    cdef public bytes nak_event         # see `ack_event`
    cdef public bytes term_event        # see `ack_event`
    cdef public bytes limit_event       # see `ack_event`; of messages at max_deliver
    cdef unsigned long long unread      # matching messages from `at.next_seq` to `counted`
    cdef unsigned long long counted     # the sequence up to which `unread` was counted
    cdef bint unread_known              # whether `unread` is right; else it is counted anew
    cdef unsigned long long* skip       # last-per-subject: skip[skip_at:skip_len] come first
    cdef Py_ssize_t skip_at             # rows of it that were delivered
    cdef Py_ssize_t skip_len            # rows in all
    cdef Delta delta                    # None when progress is kept in memory only
    cdef list unsaved                   # the node's list of consumers to be saved this turn
    cdef bint dirty                     # whether it is in `unsaved`
    cdef public list replies            # answers to acks, sent once the progress is safe
    cdef public bint stale              # the log lacks a delta: write the whole state next
    cdef public bytes owner             # of the state in the log
    cdef public bytes key               # see `owner`
    cpdef bytes save_whole(self)        # configuration and progress, as one value for the log
    cpdef bytes snapshot(self)          # progress, as one delta
    cpdef purged(self, unsigned long long start)    # the stream dropped many messages at once
    cdef int schedule_save(self) except -1
    cdef str unsound(self)              # why its progress cannot be; None
    cdef int skipped(self, unsigned long long sequence) noexcept nogil
    cdef int forget_skip(self) except -1
    cpdef set_skip(self, list sequences, unsigned long long resume)
    cpdef unsigned long long count_unread(self) except? 0
    cdef long long age_offset(self) noexcept nogil
    cdef int move_floor(self, bint was_first) except -1
    cdef int settle(self, PendingEntry* entry) except -1
    cdef int exhaust(self, PendingEntry* entry) except -1
    cdef bint full(self) noexcept nogil
    cdef int acknowledge(self, unsigned long long sequence, unsigned long long consumer_seq, long long deliveries, bint sample) except -1
    cdef int acknowledge_one(
        self, unsigned long long sequence, unsigned long long consumer_seq, bint sample
    ) except -1
    cdef int acknowledge_all(self, unsigned long long sequence, unsigned long long consumer_seq) except -1
    cdef int refuse(self, unsigned long long sequence, unsigned long long consumer_seq, long long deliveries, object delay) except -1
    cdef int progress(self, unsigned long long sequence) except -1
    cdef int tell_terminated(self, unsigned long long sequence, unsigned long long consumer_seq, long long deliveries, bytes reason, bint answered) except -1
    cdef int track(self, PendingEntry* entry) except -1
    cdef long long wait_of(self, unsigned int deliveries) noexcept nogil
    cdef long long expire(self, long long now) except? -1
    cdef int requeue_all(self, long long now) except -1
    cdef int arm(self, long long when) except -1
    cdef int reset_to(self, unsigned long long sequence) except -1
