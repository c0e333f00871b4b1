# A consumer: delivery of a stream's messages. See delivery.py.
from headwater.edge.kernel.kernel cimport Endpoint, Msg, Task
from headwater.edge.jetstream.consumer.demand cimport Demand
from headwater.edge.jetstream.consumer.pull cimport PullRequest
from headwater.edge.storage.index.store cimport Record
from headwater.edge.wire.numbers cimport NumberText

cdef enum:
    FOUND_NOTHING = 0                   # no message to deliver yet
    FOUND_END = 1                       # everything stored has been delivered
    FOUND_FULL = 2                      # too many acks are pending
    FOUND_NEW = 3
    FOUND_AGAIN = 4

cdef class Delivery(Demand):            # as a Task: delivers what can be delivered
    cdef unsigned char* scratch         # the ack subject of the message being delivered
    cdef Py_ssize_t prefix              # bytes of `scratch` that never change
    cdef NumberText last_sequence       # what the last ack subject says: the message's sequence
    cdef NumberText last_number         # the delivery's own
    cdef NumberText last_second         # when the message was stored
    cdef NumberText last_pending        # how many follow
    cdef unsigned char* copy            # subject and body, when they must not stay in the store
    cdef Py_ssize_t copy_capacity
    cdef Record record                  # the message being delivered
    cdef unsigned int deliveries        # of it, this one included
    cdef public list sinks
    cdef public bint halted             # a message of this replica is damaged: another one has it
    cdef public bint unannounced        # whoever asked for it waits for the answer, which goes first
    cdef public bint copies             # for a mirror or source, which asks for nothing twice
    cdef unsigned long long begins      # the sequence that was asked for first
    cdef unsigned long long safe_after  # what `removals_are_fresh` waits for
    cdef bint headers_only
    cdef double rate                    # ns per byte, 0 without a limit
    cdef long long rate_ready           # monotonic time at which the next message may go
    cdef bint replay                    # original timing, until the backlog is delivered
    cdef unsigned long long replay_end
    cdef long long replay_ready
    cdef long long replay_last
    cdef bint holds_new                 # a new message waits for its time in a replay
    cdef Endpoint waiting_for           # the slow receiver that delivery waits for
    cdef object watch                   # interest.InterestWatch, None for a pull consumer
    cdef bint can_send(self) except -1
    cdef int choose(self) except -1
    cdef int choose_again(self) except -1
    cdef int choose_skipped(self) except -1
    cdef bint load(self, unsigned long long sequence) except -1
    cdef long long held_back(self, int found, long long now) except? -1
    cdef int rest(self) except -1
    cdef int deliver(self, long long now) except -1
    cdef bint removals_are_fresh(self, long long now) except -1
    cdef bint tells_end(self, int found) noexcept
    cdef int send_one(self, int found, long long now) except -1
    cdef Py_ssize_t write_reply(self, unsigned long long pending) except -1
    cdef int shape(self, Msg* m, PullRequest request, bint inside) except -1
    cdef int record_delivery(self, int found, long long now) except -1
    cdef int undo_delivery(self, int found) except -1
    cdef int delivered(self, int found, Py_ssize_t size, PullRequest request, long long now) except -1
