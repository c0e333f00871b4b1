# One leaf link. See leaf_conn.py.
from headwater.edge.broker.account cimport Account
from headwater.edge.broker.conn cimport Conn
from headwater.edge.broker.core cimport Endpoint, Kernel, Msg, Sink
from headwater.edge.subjects.trie cimport Match
from headwater.federation.rules cimport Rules

cdef class LeafSub(Sink):
    pass

cdef class LeafConn(Conn):
    cdef public object session          # handshake and life of this link: leaf_session
    cdef public Account account         # None until the link is admitted
    cdef public bint ready              # admitted: interest and messages may flow
    cdef public bint spoke              # this node is the spoke; the peer is the hub
    cdef public bint headers
    cdef public bytes cluster           # cluster of the peer; b"" when unknown
    cdef public dict subs               # (subject, queue or None) -> LeafSub: the peer's interest
    cdef public Rules may_send          # what may leave by this link
    cdef public Rules may_receive       # what may come in by it
    cdef public Py_ssize_t max_payload
    cdef public Py_ssize_t max_control_line
    cdef public int pings_out
    cdef public long long pinged_ns     # when the outstanding PING was queued
    cdef public long long rtt_ns        # of the last PING; 0 before the first
    cdef bint collected                 # whether the message being routed goes to the peer
    cdef list queues                    # the queue groups of the peer that were chosen for it
    cdef bytes last_subject
    cdef Match last_match
    cdef unsigned long long last_generation
    cdef Py_ssize_t boundary            # a frame of `out` begins here, at or before `out_start`
    cdef Py_ssize_t message(self, const unsigned char* line, Py_ssize_t n, const unsigned char* end, Py_ssize_t room, bint with_headers) except? -2
    cdef int inbound(self, Msg* m, tuple only) except -1
    cdef int write(self, Msg* m) except -1
    cdef Match match_for(self, const unsigned char* subject, Py_ssize_t n)
    cdef int verb(self, bytes line) except -1
    cpdef fail(self, str error, str reason)
