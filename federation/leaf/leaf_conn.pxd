# One leaf link. See leaf_conn.py.
from headwater.edge.broker.account cimport Account
from headwater.edge.kernel.kernel cimport Msg
from headwater.edge.broker.link cimport Link
from headwater.edge.subjects.trie cimport Match

cdef class LeafConn(Link):
    cdef public Account account         # None until the link is admitted
    cdef public bint spoke              # this node is the spoke; the peer is the hub
    cdef public bytes cluster           # cluster of the peer; b"" when unknown
    cdef bytes last_subject
    cdef Match last_match
    cdef unsigned long long last_generation
    cdef Match match_for(self, const unsigned char* subject, Py_ssize_t n)
