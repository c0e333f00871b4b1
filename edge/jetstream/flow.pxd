# The window of a push consumer with flow control. See flow.py.
cdef class FlowWindow:
    cdef public long long window        # bytes that may be outstanding
    cdef public long long outstanding   # bytes sent and not confirmed
    cdef public long long asked         # of them, covered by the request in flight
    cdef public bytes token             # subject that confirms the request in flight; None without
    cdef bint blocked(self) noexcept nogil
    cdef bint sent(self, Py_ssize_t size) noexcept
    cdef int ask(self, bytes token) except -1
    cdef bint confirmed(self, const unsigned char* subject, Py_ssize_t n) except -1
