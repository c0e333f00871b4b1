# What may pass a link in one direction. See rules.py.

cdef class Rules:
    cdef public tuple allow             # bytes patterns; None: everything that is not denied
    cdef public tuple deny
    cdef bint permits(self, const unsigned char* subject, Py_ssize_t n) except -1
