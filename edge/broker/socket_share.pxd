# What the system may hold of a link. See socket_share.py.
cdef enum:
    LINE_MAX = 0x400000                 # bulk on its way along a line that is not bounded, in bytes

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

cdef class LineWindow:
    cdef readonly long long window      # bytes of bulk that may be on their way
    cdef long long confirmed            # position up to which the peer has all bulk
    cdef long long marked               # position that the newest mark follows
    cdef long long distance_ns          # of the soonest answer to a mark, and at most DISTANCE_MAX_NS
    cdef long long shrunk               # marks up to this position were asked before it shrank
    cdef long long known_ns             # when the newest answer came, and a second more each halving
    cdef int marks                      # marks without an answer
    cdef object asked                   # PINGs without an answer, in order: a mark each, or None
    cdef long long left(self, long long gone) noexcept
    cdef bint aged(self, long long now) noexcept
    cdef bint wants_mark(self, long long gone) noexcept
    cdef int mark(self, long long gone, long long now) except -1
    cdef int other_ping(self) except -1
    cdef bint answered(self, long long now) except -1
