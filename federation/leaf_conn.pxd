# One leaf link. See leaf_conn.py.
from headwater.edge.broker.account cimport Account
from headwater.edge.broker.core cimport Msg
from headwater.edge.broker.link cimport Link
from headwater.edge.subjects.trie cimport Match
from headwater.federation.rules cimport Rules

cdef class LeafConn(Link):
    cdef public Account account         # None until the link is admitted
    cdef public bint spoke              # this node is the spoke; the peer is the hub
    cdef public bytes cluster           # cluster of the peer; b"" when unknown
    cdef public Rules may_send          # what may leave by this link
    cdef public Rules may_receive       # what may come in by it
    cdef public Rules may_ask           # denies of the user's own, for what aliases stand for
    cdef bytes last_subject
    cdef Match last_match
    cdef unsigned long long last_generation
    cdef bint may_come(self, Msg* m) except -1
    cdef Match match_for(self, const unsigned char* subject, Py_ssize_t n)
