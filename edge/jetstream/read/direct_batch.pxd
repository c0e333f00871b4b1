# Batches of direct gets. See direct_batch.py.
cimport cython
from headwater.edge.kernel.kernel cimport Endpoint, Kernel, Msg, Task
from headwater.edge.jetstream.read.direct_body cimport BatchPlace
from headwater.edge.jetstream.stream.stream cimport Stream
from headwater.edge.storage.index.filter cimport Filter
from headwater.edge.storage.index.store cimport MessageStore, Record

@cython.final
cdef class DirectTurns(Task):
    cdef Kernel kernel
    cdef object ready                   # a deque of batches; each sends a part when it is first
    cdef int join(self, DirectBatch batch) except -1

@cython.final
cdef class DirectBatch(Task):
    cdef Stream stream
    cdef MessageStore store
    cdef DirectTurns turns
    cdef bytes reply
    cdef object on_end                  # called once, when nothing more will be sent
    cdef Filter filter                  # None: everything
    cdef list sequences                 # what to send; None: a range, as the filter says
    cdef unsigned long long at          # the sequence to look at next, or the index in `sequences`
    cdef unsigned long long end         # of a range: the last sequence when it began
    cdef long long count                # messages that may still be sent
    cdef long long room                 # bytes that may still be sent
    cdef BatchPlace place               # of the message to send next
    cdef bytes end_line
    cdef Endpoint waiting_for           # a receiver that is slow
    cdef bint counted                   # `place.pending` is known
    cdef bint bare                      # without header blocks
    cdef bint later                     # this is not the first part
    cdef bint done
    cdef int begin(self) except -1
    cdef int go_on(self) except -1
    cdef int part(self) except -1
    cdef bint count_pending(self) except -1
    cdef unsigned long long following(self) except? 0
    cdef bint goes_on(self) noexcept
    cdef int say(self, bytes block) except -1
    cdef int finish(self) except -1
    cdef int leave(self) except -1

cdef Py_ssize_t send_record(Stream stream, bytes reply, Record* record, BatchPlace* place, bint bare) except -1
cdef void fill(Msg* m, bytes reply, bytes text, Py_ssize_t header_len) noexcept
