# What the system may hold of a link. See socket_share.py.
cdef class SocketShare:
    cdef readonly long long most        # bytes that it may hold
    cdef long long rate                 # bytes a second that it took last; 0: not known
    cdef long long since_ns             # since when the socket is watched, monotonic ns; 0: it is not
    cdef unsigned long long since       # bytes that had passed then
    cdef int begin(self, long long rate, object sock) except -1
    cdef bint bounds(self) noexcept
    cdef long long deliveries(self) noexcept
    cdef int left(self, unsigned long long passed, long long now, object sock) except -1
    cdef void emptied(self) noexcept
    cdef int fit(self, long long wanted, object sock) except -1
