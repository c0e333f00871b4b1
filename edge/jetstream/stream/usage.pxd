# Bytes used against a limit. See usage.py.

cdef class Usage:
    cdef public str name
    cdef public long long used
    cdef public long long limit         # -1: unlimited
    cdef public long long reserved
    cdef public Usage parent
    cpdef bint exceeds(self, long long more) except -1
    cdef int change(self, long long by) except -1
