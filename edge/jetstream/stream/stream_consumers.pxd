# The consumers of a stream, and what it keeps for them. See stream_consumers.py.

cimport cython
from headwater.edge.kernel.kernel cimport Kernel

@cython.final
cdef class StreamConsumers:
    cdef Kernel kernel                  # of the node
    cdef object on_unneeded             # has the stream look for what no consumer needs any more
    cdef dict by_name                   # name -> Consumer; `changed` follows a change
    cdef set hidden                     # names of those that mirrors and sources have made
    cdef list order                     # the names of all others, sorted; None after a change
    cdef bint stale                     # `observers` and `patterns` are not what `by_name` says
    cdef list observers                 # by_name.values(), as a list
    cdef tuple patterns                 # that some consumer wants, if `by_interest`
    cdef bint by_interest               # interest retention
    cdef bint work_queue                # work-queue retention
    cdef bint copied                    # a work queue that some mirror or source copies
    cdef public bint doubtful           # a consumer is unreadable: drop nothing for lack of interest
    cdef list listed(self)
    cdef int wake(self) except -1
    cdef int removed(self, unsigned long long sequence) except -1
    cpdef bint drops_unneeded(self) except -1
    cdef bint unwanted(self, const unsigned char* subject, Py_ssize_t n) except -1
    cdef bint need(self, unsigned long long sequence) except -1
    cdef bint let_go(self, unsigned long long sequence) except -1
