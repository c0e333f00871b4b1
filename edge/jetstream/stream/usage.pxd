# Bytes used against a limit. See usage.py.

cimport cython

@cython.final
cdef class Usage:
    cdef public str name
    cdef public long long used
    cdef public long long limit         # -1: unlimited
    cdef public long long reserved
    cdef public Usage parent
    cdef public long long elsewhere     # on other nodes, against the same limit
    cdef public int replicas            # of the streams that draw on it
    cdef public bint granted            # whether the account's limits name it at all
    cpdef int refuses(self, long long more) except -1
    cdef int full(self, long long more, long long weight, int replicas) except -1
    cdef int change(self, long long by) except -1
