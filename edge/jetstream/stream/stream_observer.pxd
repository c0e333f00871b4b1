# What a stream asks and tells its consumers. See stream_observer.py.
from headwater.edge.kernel.kernel cimport Task

cdef class StreamObserver(Task):
    cdef bint needs(self, unsigned long long sequence) except -1    # interest/work-queue: not yet acked and wanted here
    cdef int removed(self, unsigned long long sequence) except -1   # the stream dropped this message (limits, delete)
