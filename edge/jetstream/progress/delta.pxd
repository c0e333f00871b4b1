# What a consumer writes down of its progress. See delta.py.
from headwater.edge.jetstream.progress.pending cimport PendingTable

cdef struct Position:
    unsigned long long next_seq         # stream sequence from which the next message is looked for
    unsigned long long next_cseq        # consumer sequence of the next delivery
    unsigned long long delivered_seq    # highest stream sequence delivered
    unsigned long long floor_cseq       # everything up to here is acknowledged
    unsigned long long floor_seq
    unsigned long long skip_resume      # end of the last-per-subject phase, 0 when it is over
    long long delivered_ns              # wall clock of the last delivery, 0 for never
    long long acked_ns                  # wall clock of the last ack, 0 for never

cdef class Delta:
    cdef unsigned char* data
    cdef public Py_ssize_t used
    cdef Py_ssize_t capacity
    cdef unsigned long long last_seq    # the operations hold differences
    cdef unsigned long long last_cseq
    cdef unsigned long long last_ns
    cdef int room(self, Py_ssize_t need) except -1
    cdef int number(self, unsigned long long value) noexcept nogil
    cdef int signed(self, long long value) noexcept nogil
    cdef int sequence(self, unsigned int operation, unsigned long long sequence) except -1
    cdef int track(self, unsigned long long sequence, unsigned long long consumer_seq, long long wall_ns, unsigned int deliveries) except -1
    cdef int drop(self, unsigned long long sequence) except -1
    cdef int exhaust(self, unsigned long long sequence, unsigned int deliveries) except -1
    cdef int forgive(self, unsigned long long sequence) except -1
    cdef int floor(self, unsigned long long sequence) except -1
    cdef int reset(self) except -1
    cdef bytes drain(self, Position* position)

cdef int apply_delta(bytes data, Position* position, PendingTable table, dict exhausted, long long wall_offset) except -1
