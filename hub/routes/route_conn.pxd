# One route to another node of the cluster. See route_conn.py.
from headwater.edge.broker.account cimport Account
from headwater.edge.kernel.kernel cimport Endpoint, Msg, Task
from headwater.edge.broker.link cimport Link

cdef class Halt(Task):
    cdef RouteConn conn                 # to the peer that was asked
    cdef bytes key                      # what it holds back, see `RouteConn.asked`
    cdef long long said_ns              # when it was asked last, monotonic ns

cdef class RouteConn(Link):
    cdef public object accounts         # callable: name -> Account or None
    cdef public bint origins            # whether the peer understands LS+, LS- and LMSG
    cdef public frozenset ignored       # subjects of the peer's interest that stay with the peer
    cdef public dict aside              # interest in accounts that are unknown here: key -> weight
    cdef Py_ssize_t aside_bytes         # what it takes
    cdef bint aside_full                # whether that was said
    cdef public object on_frame         # callable: (conn, kind, frame), for what nodes say; or None
    cdef public object late             # callable, asked of deliveries, see `hub/streams/late_deliveries`; or None
    cdef readonly bytes own             # the account that has the route for itself; None when it is shared
    cdef public bint holds_back         # whether the peer holds back what it is asked to
    cdef readonly dict asked            # what it was asked to: account, or account and subject -> Halt
    cdef readonly dict held             # what it asks this node to hold back: the same key -> Endpoint
    cdef Account last_account
    cdef bytes last_name
    cdef Account account_for(self, const unsigned char* name, Py_ssize_t n)
    cdef int ask(self, bytes account, Msg* m, Endpoint receiver) except -1
    cdef int check_held(self, Msg* m) except -1
    cdef int node_frame(self, Msg* m) except -1
    cdef bint comes_late(self, Msg* m, const unsigned char* name, Py_ssize_t n) except -1
