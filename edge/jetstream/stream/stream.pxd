# A stream: what consumers and federation see of it. See stream.py.
from headwater.edge.broker.account cimport Account
from headwater.edge.kernel.kernel cimport Endpoint, Kernel, Msg, Sink, Task
from headwater.edge.jetstream.replication.read_gate cimport ReadGate
from headwater.edge.jetstream.replication.replicator cimport Replicator
from headwater.edge.jetstream.stream.answers cimport Answers
from headwater.edge.jetstream.stream.dedupe cimport DedupeWindow
from headwater.edge.jetstream.stream.republish cimport Republisher
from headwater.edge.jetstream.stream.stream_consumers cimport StreamConsumers
from headwater.edge.jetstream.stream.usage cimport Usage
from headwater.edge.storage.index.store cimport MessageStore
from headwater.edge.subjects.transform cimport Transform

cdef class Stream(Task):                # as a Task: runs when the store's `committed` grew
    cdef public str name                # as its configuration says
    cdef public bytes name_bytes        # the same, for subjects and headers
    cdef public str incarnation         # hex; names this making of the stream for ever
    cdef public Account account         # whose subjects it listens on
    cdef public Kernel kernel           # of the node
    cdef public MessageStore store      # its messages; the stream sees to their limits
    cdef public object config           # models.StreamConfig
    cdef public object node             # jetstream.node.NodeJetStream
    cdef public long long created_ns    # ns since the Unix epoch
    cdef public StreamConsumers consumers   # by name; and what retention keeps for them
    cdef public bint deleted            # takes no messages and answers nobody any more
    cdef public object origin_driver         # federation's mirror/source driver, None without
    cdef public unsigned long long group    # number of its Raft group; 0 with one replica
    cdef public str cluster             # identity of the cluster that the group is of
    cdef public Replicator replicator   # None with one replica, and where another node leads
    cdef public ReadGate reads          # None with one replica
    # For the stream's own compiled parts.
    cdef public list sinks              # IngestSinks and direct-get sinks in the account
    cdef public Answers answers         # what publishers are owed
    cdef public DedupeWindow dedupe     # message ids of the duplicate window
    cdef public Republisher republisher # None without
    cdef public Transform transform     # input transform, None without
    cdef public Usage usage             # the account's tier that this stream draws on
    cdef public object timers           # expiry.Expiry: age, per-message TTL, delete markers
    cdef public object schedules        # schedules.Schedules, None unless allow_msg_schedules
    cdef public object batches          # batch.Batches, None unless batches are allowed
    cdef public bytes last_msg_id       # id of the newest message that had one, for expected-last-msg-id
    cdef long long max_msgs             # -1: no limit, as in the configuration; so are the other limits
    cdef public long long max_bytes     # in force: that of the configuration, or `disk` sets it
    cdef public object disk             # stream_budget.StreamBudget, None without
    cdef long long max_age              # ns; 0: messages do not age
    cdef public long long age_offset    # wall clock less the node's age clock, ns (see age_clock.py)
    cdef public long long lift          # what timestamps are ahead of a clock that was set back, ns
    cdef public bint age_armed          # whether `timers` waits for the oldest message to end
    cdef long long max_per_subject      # messages of one subject
    cdef long long max_msg_size         # bytes of headers and payload
    cdef long long marker_ttl_s         # of delete markers; 0: none are left
    cdef bint discard_new               # what does not fit is refused, else the oldest go
    cdef bint discard_new_per           # the same for each subject
    cdef public bint emptied            # it was purged whole, if only of nothing
    cdef public bint sealed             # nothing is stored or removed any more
    cdef public bint urgent             # deliveries of its consumers go ahead of others on links
    cdef bint ttl_allowed               # messages may bear a Nats-TTL
    cdef bint rollup_allowed            # messages may bear a Nats-Rollup
    cdef public bint is_mirror          # messages come from its origin alone
    cdef bint counter                   # a counter stream (ADR-49)
    cdef long long overhead             # bytes counted per message besides its content
    cdef long long counted_bytes        # of this stream's bytes, as far as `usage` knows
    # For consumers.
    cdef int consumer_acked(self, unsigned long long sequence) except -1
    # For ingest, retention and federation.
    cdef unsigned long long keep(self, Msg* m, long long timestamp, unsigned long long sequence) except 0
    cdef int remember_id(self, Msg* m, long long timestamp, unsigned long long sequence) except -1
    cdef unsigned long long enter(self, Msg* m, long long timestamp, unsigned long long sequence) except 0
    cdef unsigned long long enter_passed(self, Msg* m, long long timestamp, unsigned long long sequence) except 0
    cdef unsigned long long append_import(self, Msg* m, long long timestamp, unsigned long long sequence, bytes extra) except 0
    cdef unsigned long long pass_over(self, Msg* m, long long timestamp) except 0
    cdef int drop(self, unsigned long long sequence) except -1
    cdef int remove_here(self, unsigned long long sequence, bint erase=*) except -1
    cdef unsigned long long last_for(self, const unsigned char* subject, Py_ssize_t n) except? 0
    cdef unsigned long long count_for(self, const unsigned char* subject, Py_ssize_t n) except? 0
    cpdef unsigned long long newest(self) except? 0
    cpdef entry_applied(self)
    cdef int trim(self) except -1
    cdef str full_for(self, Msg* m, long long size, bint rolls_up)
    cdef bint has_most_messages(self) except -1
    cpdef bint is_full(self) except -1
    cpdef bint has_room(self, long long size, Py_ssize_t subject_len) except -1
    cdef int trim_subject(self, const unsigned char* subject, Py_ssize_t n) except -1
    cdef int count_usage(self) except -1
