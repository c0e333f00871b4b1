# Atomic batches. See batch.py.
cimport cython
from headwater.edge.kernel.kernel cimport Msg
from headwater.edge.jetstream.model.headers cimport PublishHeaders
from headwater.edge.jetstream.publish.fast_batch cimport FastBatches
from headwater.edge.jetstream.stream.stream cimport Stream

@cython.final
cdef class BatchRoom:
    cdef readonly Py_ssize_t bytes      # of subjects and contents that open batches hold
    cdef public Py_ssize_t bytes_max
    cdef readonly Py_ssize_t count      # of open batches
    cdef Py_ssize_t most

@cython.final
cdef class HeldMessage:
    cdef readonly bytes subject
    cdef readonly bytes body            # header block followed by the payload
    cdef Py_ssize_t header_len
    cdef bint plain                     # its headers say nothing but which batch it is of
    cdef Py_ssize_t cost(self) noexcept

@cython.final
cdef class Batch:
    cdef readonly list messages
    cdef Py_ssize_t size                # bytes of subjects and contents
    cdef Py_ssize_t largest             # content of one message
    cdef bint plain                     # all its messages are
    cdef long long touched_ns           # monotonic; when its newest message came
    cdef object timer
    cdef int append(self, HeldMessage held) except -1

@cython.final
cdef class Batches:
    cdef Stream stream
    cdef BatchRoom room                 # of all streams of the node
    cdef readonly dict open             # id -> Batch
    cdef readonly FastBatches fast      # the other kind of batches; None where it is not allowed
    cdef object limits
    cdef Py_ssize_t most                # open batches of this stream
    cdef Py_ssize_t messages_max        # of one batch
    cdef double timeout_s
    cdef bint hold(self, Msg* m, PublishHeaders* h) except -1
