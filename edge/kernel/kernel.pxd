# Types that every compiled module shares that sends or receives. See kernel.py for what each one owns.
from headwater.edge.kernel.busy_poll cimport BusyPoll
from headwater.edge.kernel.send_crew cimport Piece, SendCrew

cdef struct Msg:
    const unsigned char* subject        # the subject that is routed on
    Py_ssize_t subject_len
    const unsigned char* reply          # unused when reply_len is 0
    Py_ssize_t reply_len
    const unsigned char* shown          # subject shown to receivers; the routed one when shown_len is 0
    Py_ssize_t shown_len
    const unsigned char* body           # header block followed by the payload
    Py_ssize_t header_len               # bytes of the header block, 0 without headers
    Py_ssize_t size                     # header_len + payload length
    int via                             # how it came to be; see authorize.py

cdef enum:
    MADE = 0                            # by the node, for a subject that somebody else chose
    FROM_PEER = 1                       # out of a frame: its words are clean, and were checked
    OWN = 2                             # by the node, for a subject of its own choice

cdef enum:
    KIND_CLIENT = 0
    KIND_LEAF = 1
    KIND_INTERNAL = 2

cdef class Task:
    cdef bint scheduled
    cdef int run(self) except -1

cdef class StagedTasks(Task):
    cdef readonly list tasks            # in the order of `stages`
    cdef list stages

cdef class Endpoint(Task):
    cdef public unsigned long long cid
    cdef public int kind
    cdef public bint closed
    cdef bint dirty
    cdef bint answered                  # it was sent something since it was read last
    cdef public Py_ssize_t pending      # bytes queued and not yet taken by the socket
    cdef list waiters                   # Tasks to schedule once `pending` is low again
    cdef int push(self) except -1
    cdef bint offer(self, Piece* piece) noexcept
    cdef int count_sent(self, Py_ssize_t n) except -1
    cdef int collect(self, Sink sink) except -1
    cdef int emit(self, Msg* m, Endpoint sender) except -1
    cdef bint may_reach(self, Msg* m) except -1

cdef class Sink:
    cdef public bytes subject
    cdef public bytes queue             # None: a plain subscription
    cdef public Endpoint owner          # None: the node itself
    cdef public bint remote             # behind a leaf or route; delivered through owner.collect/emit
    cdef public bint closed
    cdef public bint interim            # stands in for one at another node of the cluster, which tells its own links
    cdef public int weight              # members that stand behind a remote queue sink
    cdef public unsigned long long delivered
    cdef int deliver(self, Msg* m, Endpoint sender) except -1

cdef class CallbackSink(Sink):
    cdef object callback

cdef class Kernel:
    cdef public object loop
    cdef object time_source             # ports.Clock; None: the machine's
    cdef public object chance           # ports.Random
    cdef public long long now_ns        # wall clock at the start of this turn, ns since the epoch
    cdef public object clock_watch      # called when the wall clock may have been set; may be None
    cdef long long watched_ns           # wall clock when that was last looked at
    cdef list dirty
    cdef SendCrew crew                  # None: it was not wanted yet
    cdef list tasks
    cdef list later                     # tasks for the next turn
    cdef readonly StagedTasks turn_hooks    # run at the end of every turn
    cdef public Endpoint congested      # receiver over its high-water mark met by the last delivery
    cdef public bint urgent             # what is sent now goes ahead of bulk that waits for a link
    cdef Msg* arrived                   # message of a peer that is being routed; NULL for none
    cdef Endpoint arrived_by            # the link by which it came
    cdef bytes arrived_from             # cluster that it came from by a leaf link, here or at the peer; b"" when unknown
    cdef bint turning
    cdef unsigned long long reader      # cid of the connection that sent last
    cdef int reads                      # how often in a row
    cdef bint lone                      # this turn is that of a client that sends alone
    cdef readonly BusyPoll busy_poll    # looks at sockets before the loop sleeps
    cdef Task after_read                # run once when such a turn is over; may be None
    cdef bint kicked
    cdef public unsigned long long in_msgs
    cdef public unsigned long long in_bytes
    cdef public unsigned long long out_msgs
    cdef public unsigned long long out_bytes
    cdef unsigned long long random_state
    cdef unsigned char* read_buffer
    cdef Py_ssize_t read_capacity
    cpdef long long wall_ns(self) except? -1
    cpdef long long monotonic_ns(self) except? -1
    cdef bint reading                   # what one read brought is being taken
    cdef bint stamped                   # and `now_ns` is its time
    cdef long long fresh_ns(self) except? -1    # refreshes now_ns
    cdef long long arrival_ns(self) except? -1
    cdef int queue_send(self, Endpoint endpoint) except -1
    cdef int schedule(self, Task task) except -1
    cdef int schedule_later(self, Task task) except -1
    cpdef int resume_producers(self, Endpoint receiver) except -1
    cdef unsigned long long random(self) noexcept nogil
    cdef int send_dirty(self) except -1
    cdef int send_shared(self, list batch) except -1
    cpdef turn(self)
    cdef int turn_of_read(self, Endpoint reader, Py_ssize_t size, long long at_ns) except -1
    cpdef kick(self)
