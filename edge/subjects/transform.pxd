# Subject transforms. See transform.py.

cdef class Step:
    cdef int kind
    cdef bytes text
    cdef list tokens                    # source token positions
    cdef long long number
    cdef put(self, list out, list tokens, bytes subject, unsigned long long pick)
    cdef bytes partition(self, list tokens, bytes subject)
    cdef list cut(self, bytes token)

cdef class Transform:
    cdef public bytes source
    cdef public bytes destination
    cdef list steps
    cdef bint identity
    cdef bint any_source
    cdef bint keeps_tail
    cdef Py_ssize_t source_tokens
    cdef bytes apply(self, const unsigned char* subject, Py_ssize_t n, unsigned long long pick)
    cdef bytes rewrite(self, bytes subject, unsigned long long pick)
