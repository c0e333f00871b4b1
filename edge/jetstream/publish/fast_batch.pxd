# Fast batches: publishes that are answered now and then. See fast_batch.py.
from headwater.edge.kernel.kernel cimport Msg
from headwater.edge.jetstream.stream.stream cimport Stream

cdef struct Step:                       # what the reply subject of one message says
    const unsigned char* name
    Py_ssize_t name_len
    unsigned long long sequence         # in the batch, from 1
    int flow                            # messages per answer that the client takes at most
    int operation
    bint gap_ok

cdef bint is_step(const unsigned char* reply, Py_ssize_t n) noexcept nogil
cdef bint read_step(const unsigned char* reply, Py_ssize_t n, Step* out) noexcept nogil

cdef class FastBatch:
    cdef bytes name
    cdef unsigned long long last        # the last message of the batch that was dealt with
    cdef unsigned long long stored      # the last sequence of the stream that it wrote
    cdef unsigned long long answered        # the message up to which the client has an answer
    cdef int every                      # messages per answer now
    cdef int most                       # messages per answer that the client takes at most
    cdef bint gap_ok
    cdef long long touched_ns           # monotonic
    cdef public object timer

cdef class FastBatches:
    cdef Stream stream
    cdef dict open                      # name -> FastBatch
    cdef Py_ssize_t limit
    cdef object timeout_s
    cdef FastBatch find(self, Step* step)
    cdef bint expects(self, Msg* m, Step* step, FastBatch batch) except -1
    cdef int ping(self, Msg* m, Step* step, FastBatch batch) except -1
    cdef int accepted(self, Msg* m, Step* step, FastBatch batch, unsigned long long sequence) except -1
    cdef int repeated(self, Msg* m, Step* step, FastBatch batch) except -1
    cdef int refused(self, Msg* m, Step* step, FastBatch batch, object error) except -1
    cdef int owe(self, Msg* m, unsigned long long sequence, bytes payload) except -1
    cdef int commit(self, Msg* m, FastBatch batch) except -1
    cdef int gap(self, Msg* m, FastBatch batch, unsigned long long expected, unsigned long long got) except -1
    cdef int flow(self, Msg* m, FastBatch batch) except -1
    cdef bint flow_due(self, Msg* m, FastBatch batch) except -1
    cpdef close(self, FastBatch batch)
