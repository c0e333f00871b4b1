# The window of a push consumer with flow control. See flow.py.
cdef class FlowWindow:
    cdef public long long window        # bytes that may be outstanding
    cdef public long long outstanding   # bytes sent and not confirmed
    cdef public long long asked         # of them, confirmed by the answer to the request in flight
    cdef public bytes token             # subject that confirms the request in flight; None without
    cdef long long covered              # bytes that were sent before the request in flight
    cdef long long since                # when the first of them was, or the last answer came, ns
    cdef bint blocked(self) noexcept nogil
    cdef bint wants(self) noexcept
    cdef bint sent(self, Py_ssize_t size, long long now) noexcept
    cdef int ask(self, bytes token) except -1
    cdef bint confirmed(self, const unsigned char* subject, Py_ssize_t n, long long now) except -1
    cdef void resize(self, double rate) noexcept
