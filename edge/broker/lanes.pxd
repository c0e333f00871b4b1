# A connection whose urgent frames go ahead of its bulk. See lanes.py.
from headwater.edge.broker.conn cimport Conn
from headwater.edge.broker.senders cimport Senders
from headwater.edge.broker.socket_share cimport LineWindow, SocketShare
from headwater.edge.kernel.kernel cimport Endpoint

cdef class LanedConn(Conn):
    cdef unsigned char* bulk            # frames that wait for all of `out`: bulk[bulk_start:bulk_end]
    cdef Py_ssize_t bulk_start          # nothing before it has to be sent, and a frame begins here
    cdef Py_ssize_t bulk_end            # equal to `bulk_start`: no bulk stands apart
    cdef Py_ssize_t bulk_capacity
    cdef Py_ssize_t boundary            # a frame of `out` begins here, at or before `out_start`
    cdef Py_ssize_t lane_end            # behind it, `out` holds bulk alone
    cdef long long bulk_in              # bytes of bulk that were queued since it is there
    cdef Senders senders                # whose messages may be bulk; None: nobody's
    cdef SocketShare share              # what the system may hold; None: what it likes
    cdef readonly LineWindow line       # what may be on its way; None: what the peer asks for
    cdef Endpoint gate                  # consumers of this node wait here for their turn
    cdef long long delivered            # bytes that these sent, since `held_until` was set
    cdef long long held_until           # they wait until so many bytes of bulk have nearly gone
    cdef Py_ssize_t cut_at(self, Py_ssize_t n) noexcept
    cdef int hold_deliveries(self, Py_ssize_t n, Endpoint sender) except -1
    cdef bint holds(self) noexcept
    cdef Py_ssize_t bulk_waiting(self) noexcept
    cdef int fit_line(self) except -1
    cdef int hold_bulk(self) except -1
    cdef bint is_own_pong(self) except -1
    cdef int change_lanes(self) except -1
    cdef unsigned char* reserve(self, Py_ssize_t need, bint in_bulk) except *
    cdef int keep(self, Py_ssize_t n, bint in_bulk) except -1
    cdef int advance(self, Py_ssize_t n) except -1
    cdef int part(self, Py_ssize_t at, Py_ssize_t last) except -1
