# The window of a push consumer with flow control. See flow.py.
cdef class FlowWindow:
    cdef public long long window        # bytes that may be outstanding
    cdef public long long outstanding   # bytes sent and not confirmed
    cdef public long long asked         # of them, confirmed by the answer to the request in flight
    cdef public bytes token             # subject that confirms the request in flight; None without
    cdef public bint fresh              # deliveries go ahead of the bulk that waits for links
    cdef bint whole                     # nothing was sent since the request in flight
    cdef bint early                     # that request came before half of the window was used
    cdef bint holding                   # nothing is sent until the request in flight is answered
    cdef long long asked_ns             # when the last request was made
    cdef long long answer_ns            # how long the answer before took
    cdef long long distance_ns          # the soonest answer; 0 before the first
    cdef long long covered              # bytes that were sent before the request in flight
    cdef long long since                # when the first of them was, or the last answer came, ns
    cdef bint blocked(self) noexcept nogil
    cdef bint wants(self) noexcept
    cdef bint goes_ahead(self, Py_ssize_t size) noexcept
    cdef bint settles(self, long long now) noexcept
    cdef bint sent(self, Py_ssize_t size, long long now) noexcept
    cdef int ask(self, bytes token, long long now) except -1
    cdef bint confirmed(self, const unsigned char* subject, Py_ssize_t n, long long now) except -1
    cdef void resize(self, double rate) noexcept
