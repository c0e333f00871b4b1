# Which messages a batch of the log holds. See batch_runs.py.
from headwater.edge.storage.log.logged_store cimport LoggedStore
from headwater.edge.storage.format.record cimport Run

cdef class BatchRuns:
    cdef Run* rows
    cdef unsigned int count
    cdef unsigned int capacity
    cdef int add(self, LoggedStore store, unsigned long long batch, unsigned long long sequence) except -1
    cdef int join(self, unsigned long long stream, unsigned long long sequence) except -1
    cdef int begin(self, unsigned long long stream, unsigned long long sequence) except -1
    cdef bytes packed(self)
