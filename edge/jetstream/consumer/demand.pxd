# Who wants a consumer's messages. See demand.py.
from headwater.edge.kernel.kernel cimport Msg
from headwater.edge.jetstream.consumer.flow cimport FlowWindow
from headwater.edge.jetstream.progress.consumer cimport Consumer
from headwater.edge.jetstream.consumer.pull cimport PullQueue, PullRequest
from headwater.edge.subjects.trie cimport Match

cdef enum:
    POLICY_NONE = 0
    POLICY_OVERFLOW = 1
    POLICY_PINNED = 2
    POLICY_PRIORITIZED = 3

    OVER = 0                            # verdicts on a pull request
    WAIT = 1
    ADMIT = 2

cdef class Demand(Consumer):
    cdef public object wiring           # consumer_wiring.Wiring
    # Pull consumers.
    cdef public PullQueue queue         # None for a push consumer
    cdef bint ruled                     # requests have to be checked against the configuration
    cdef long long checked_ns           # last time that all waiting requests were looked at
    cdef PullRequest held               # gets the message that waits for its time in a replay
    cdef bint held_last                 # whether that is its last one: it has left the queue
    cdef long long held_until           # monotonic time until which no request ends for that
    cdef int policy
    cdef public str pin                 # id of the pinned client, "" without
    cdef public long long pinned_ns     # wall clock
    cdef long long pin_until            # monotonic
    cdef long long pin_timeout          # ns
    cdef public bint urgent             # its own choice: deliveries go ahead of others on links
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
    # Both.
    cdef public long long threshold     # ns without interest after which the consumer is deleted; 0 never
    cdef long long active_ns            # monotonic time of the last sign of use
    cdef public long long paused_until  # wall clock, 0 when not paused
    cdef object timer
    cdef long long timer_at
    cdef bint due
    cdef bint is_urgent(self) noexcept
    cdef int touch(self) except -1
    cdef int pull(self, const unsigned char* reply, Py_ssize_t reply_len, const unsigned char* body, Py_ssize_t n) except -1
    cdef int answer(self, const unsigned char* reply, Py_ssize_t n) except -1
    cdef bint level_refused(self, const unsigned char* block, Py_ssize_t n, const unsigned char* reply, Py_ssize_t reply_len) except -1
    cdef int flow_confirmed(self, Msg* m) except -1
    cdef int ask_flow(self) except -1
    cdef int status(self, bytes reply, bytes text) except -1
    cdef int status_pending(self, PullRequest request, bytes text) except -1
    cdef int idle_heartbeat(self, bytes reply) except -1
    cdef PullRequest next_request(self, Py_ssize_t size, long long now, unsigned long long unread)
    cdef int admits(self, PullRequest request, Py_ssize_t size, unsigned long long unread) except -1
    cdef bint overflow_waits(self, PullRequest request, unsigned long long unread) except -1
    cdef bint hold(self, long long until, long long now) except -1
    cdef int let_go(self) except -1
    cdef int at_end(self, long long now) except -1
    cdef long long tend(self, long long now) except? -1
    cdef long long tend_requests(self, long long now, bint end) except? -1
    cdef int request_due(self, long long now) except -1
    cdef long long tend_push(self, long long now) except? -1
    cdef long long tend_idle(self, long long now) except? -1
    cdef long long pending_batch(self) except -1
    cpdef bint interested(self) except -1
    cdef bint listens(self, tuple sinks) except -1
