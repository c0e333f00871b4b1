# A consumer: delivery of a stream's messages. See consumer.py; position and acks are in progress.pxd.
from headwater.edge.broker.core cimport Endpoint, Kernel, Msg, Sink, Task
from headwater.edge.jetstream.flow cimport FlowWindow
from headwater.edge.jetstream.progress cimport Progress
from headwater.edge.jetstream.pull cimport PullQueue, PullRequest
from headwater.edge.jetstream.stream cimport Stream
from headwater.edge.storage.store cimport MessageStore, Record
from headwater.edge.subjects.trie cimport Match

cdef enum:
    FOUND_NOTHING = 0                   # no message to deliver yet
    FOUND_END = 1                       # everything stored has been delivered
    FOUND_FULL = 2                      # too many acks are pending
    FOUND_NEW = 3
    FOUND_AGAIN = 4

    POLICY_NONE = 0
    POLICY_OVERFLOW = 1
    POLICY_PINNED = 2
    POLICY_PRIORITIZED = 3

cdef class Consumer(Progress):          # as a Task: delivers what can be delivered
    cdef unsigned char* scratch         # the ack subject of the message being delivered
    cdef Py_ssize_t prefix              # bytes of `scratch` that never change
    cdef unsigned char* copy            # subject and body, when they must not stay in the store
    cdef Py_ssize_t copy_capacity
    cdef Record record                  # the message being delivered
    cdef unsigned int deliveries        # of it, this one included
    cdef public list sinks
    cdef bint headers_only
    cdef bint ruled                     # pull requests have to be checked against the configuration
    # Pull consumers.
    cdef public PullQueue queue         # None for a push consumer
    cdef long long checked_ns           # last time that all waiting requests were looked at
    cdef int policy
    cdef public str pin                 # id of the pinned client, "" without
    cdef public long long pinned_ns     # wall clock
    cdef long long pin_until            # monotonic
    cdef long long pin_timeout          # ns
    # Push consumers.
    cdef public bytes deliver_subject   # None for a pull consumer
    cdef bytes deliver_group
    cdef public bint active             # whether somebody listens
    cdef Match match
    cdef unsigned long long generation
    cdef bint inside
    cdef FlowWindow flow                # None without flow control
    cdef long long heartbeat            # ns, 0 without
    cdef long long sent_ns              # monotonic time of the last delivery or heartbeat
    cdef double rate                    # ns per byte, 0 without a limit
    cdef long long rate_ready           # monotonic time at which the next message may go
    cdef bint replay                    # original timing, until the backlog is delivered
    cdef unsigned long long replay_end
    cdef long long replay_ready
    cdef long long replay_last
    # Both.
    cdef public long long threshold     # ns without interest after which the consumer is deleted; 0 never
    cdef long long active_ns            # monotonic time of the last sign of use
    cdef public long long paused_until  # wall clock, 0 when not paused
    cdef object timer
    cdef long long timer_at
    cdef bint due
    cdef Endpoint waiting_for           # the slow receiver that delivery waits for
    cdef object watch                   # push.InterestWatch, None for a pull consumer
    cdef int touch(self) except -1
    cdef int pull(self, const unsigned char* reply, Py_ssize_t reply_len, const unsigned char* body, Py_ssize_t n) except -1
    cdef int answer(self, const unsigned char* reply, Py_ssize_t n) except -1
    cdef bint level_refused(self, const unsigned char* block, Py_ssize_t n, const unsigned char* reply, Py_ssize_t reply_len) except -1
    cdef int flow_confirmed(self, Msg* m) except -1
    cdef int ask_flow(self) except -1
    cdef int status(self, bytes reply, bytes text) except -1
    cdef int status_pending(self, PullRequest request, bytes text) except -1
    cdef int idle_heartbeat(self, bytes reply) except -1
    cdef bint can_send(self) except -1
    cdef int choose(self) except -1
    cdef int choose_again(self) except -1
    cdef int choose_skipped(self) except -1
    cdef bint load(self, unsigned long long sequence) except -1
    cdef long long held_back(self, long long now) except? -1
    cdef int deliver(self, long long now) except -1
    cdef int send_one(self, int found, long long now) except -1
    cdef Py_ssize_t write_reply(self, unsigned long long pending) except -1
    cdef int shape(self, Msg* m, PullRequest request, bint inside) except -1
    cdef int record_delivery(self, int found, long long now) except -1
    cdef int undo_delivery(self, int found) except -1
    cdef int delivered(self, int found, Py_ssize_t size, PullRequest request, long long now) except -1
    cdef PullRequest next_request(self, Py_ssize_t size, long long now)
    cdef int admits(self, PullRequest request, Py_ssize_t size, bint* claimed) except -1
    cdef bint overflow_waits(self, PullRequest request) except -1
    cdef int at_end(self, long long now) except -1
    cdef long long tend(self, long long now) except? -1
    cdef long long tend_requests(self, long long now, bint end) except? -1
    cdef long long tend_push(self, long long now) except? -1
    cdef long long tend_idle(self, long long now) except? -1
    cdef long long pending_batch(self) except -1
    cpdef bint interested(self) except -1
