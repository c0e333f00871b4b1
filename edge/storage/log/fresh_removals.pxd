# Removals that a power cut could still take back. See fresh_removals.py.

cdef class FreshRemovals:
    cdef unsigned long long low         # of this turn's, 0 without any
    cdef unsigned long long high
    cdef list written                   # [lsn, lowest, highest sequence], ascending by lsn
    cdef int add(self, unsigned long long first, unsigned long long last) except -1
    cdef int flush(self, unsigned long long lsn, unsigned long long safe) except -1
    cdef unsigned long long within(self, unsigned long long first, unsigned long long last, unsigned long long safe) except? 0
