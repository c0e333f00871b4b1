# What a batch of the log has to put a second time. See second_copies.py.

cdef class SecondCopies:
    cdef list rows
    cdef set keys
    cdef Py_ssize_t end                 # where the last first copy ends in its log segment
    cdef int add(self, int kind, unsigned long long stream, bytes first, bytes second, bytes rest, Py_ssize_t end) except -1
    cdef int follow(self, int kind, bytes first, bytes second, bytes rest) except -1
    cdef int drop(self, bytes first, bytes second) except -1
    cdef list drain(self)
