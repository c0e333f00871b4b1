# One route to another node of the cluster. See route_conn.py.
from headwater.edge.broker.account cimport Account
from headwater.edge.kernel.kernel cimport Msg
from headwater.edge.broker.link cimport Link

cdef class RouteConn(Link):
    cdef public object accounts         # callable: name -> Account or None
    cdef public bint origins            # whether the peer understands LS+, LS- and LMSG
    cdef public frozenset ignored       # subjects of the peer's interest that stay with the peer
    cdef public dict aside              # interest in accounts that are unknown here: key -> weight
    cdef Py_ssize_t aside_bytes         # what it takes
    cdef bint aside_full                # whether that was said
    cdef public object on_frame         # callable: (conn, kind, frame), for what nodes say; or None
    cdef public object late             # callable, asked of deliveries, see `hub/streams/late_deliveries`; or None
    cdef public object stale            # callable: (conn), when what comes may have been on its way for long; or None
    cdef public long long fresh_ns      # monotonic ns: then this node ran, and had just heard the other one
    cdef readonly bytes own             # the account that has the route for itself; None when it is shared
    cdef Account last_account
    cdef bytes last_name
    cdef Account account_for(self, const unsigned char* name, Py_ssize_t n)
    cdef int handle(self, Py_ssize_t n) except -1
    cdef int node_frame(self, Msg* m) except -1
    cdef bint comes_late(self, Msg* m, const unsigned char* name, Py_ssize_t n) except -1
