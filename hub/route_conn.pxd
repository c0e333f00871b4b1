# One route to another node of the cluster. See route_conn.py.
from headwater.edge.broker.account cimport Account
from headwater.edge.broker.conn cimport Conn
from headwater.edge.broker.core cimport Endpoint, Kernel, Msg, Sink

cdef class RouteSub(Sink):
    cdef public bytes account           # name of the account, as it stands on the wire

cdef class RouteConn(Conn):
    cdef public object session          # handshake and life of this route: route_session
    cdef public object accounts         # callable: account name -> Account
    cdef public bint ready              # the peer is known: interest and messages may flow
    cdef public bint headers
    cdef public frozenset ignored       # subjects of the peer's interest that stay with the peer
    cdef public dict subs               # (account, subject, queue or None) -> RouteSub
    cdef public int pings_out
    cdef public long long pinged_ns     # when the outstanding PING was queued
    cdef public long long rtt_ns        # of the last PING; 0 before the first
    cdef Account last_account
    cdef bytes last_name
    cdef bint collected                 # whether the message being routed goes to the peer
    cdef bytes collected_account
    cdef list queues                    # queue groups of the peer that were chosen for it
    cdef Py_ssize_t message(self, const unsigned char* line, Py_ssize_t n, const unsigned char* end, Py_ssize_t room, bint with_headers) except? -2
    cdef int inbound(self, Account account, Msg* m, tuple only) except -1
    cdef int write(self, Msg* m) except -1
    cdef Account account_for(self, const unsigned char* name, Py_ssize_t n)
    cdef int verb(self, bytes line) except -1
    cpdef fail(self, str error, str reason)
