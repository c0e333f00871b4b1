# What an account wants, as links tell it. See interest_counts.py.
from headwater.edge.broker.account cimport Account
from headwater.edge.kernel.kernel cimport Sink

cdef class InterestCounts:
    cdef dict counts                    # (subject, queue or None, origin or None) -> sinks, or members of the group
    cdef bytes more                     # begin of a line that tells of interest
    cdef bytes less                     # begin of a line that tells of its end
    cdef begin_counting(self, Account account)
    cdef bint concerns(self, Sink sink) except -1
    cdef bytes origin_of(self, Sink sink)
    cdef bint add(self, tuple key, int weight) except -1
    cdef subtract(self, tuple key, int weight)
    cdef bytes line(self, tuple key)
