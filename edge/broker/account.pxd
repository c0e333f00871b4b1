from headwater.edge.broker.core cimport Endpoint, Kernel, Msg, Sink
from headwater.edge.subjects.trie cimport Match, Trie

cdef class Account:
    cdef public str name
    cdef public Kernel kernel
    cdef public Trie trie
    cdef dict cache                     # literal subject -> Match, at most CACHE_MAX entries
    cdef dict prefixes                  # the same for subjects whose end is new every time
    cdef public unsigned long long generation   # grows with every change of interest
    cdef list watchers                  # objects told of interest that comes and goes
    cdef unsigned int doorkeeper[4096]
    cdef public object jetstream        # the account's JetStream, None without
    cdef public object mappings         # subject mappings, None without
    cdef public dict limits
    cdef public Py_ssize_t connections
    cdef Match match_prefix(self, const unsigned char* subject, Py_ssize_t n, Py_ssize_t fixed)
    cdef Match match(self, const unsigned char* subject, Py_ssize_t n)
    cdef Py_ssize_t route(self, Msg* m, Endpoint origin, Match match, tuple only) except -1
    cdef Py_ssize_t publish(self, Msg* m, Endpoint origin) except -1
    cpdef Py_ssize_t send(self, bytes subject, bytes payload, bytes reply=*, bytes headers=*, bytes shown=*, Endpoint origin=*) except -1
    cdef forget(self, bytes subject)
    cdef Sink pick(self, tuple group, Msg* m, Endpoint origin, tuple only)
    cpdef insert(self, Sink sink)
    cpdef remove(self, Sink sink)
    cpdef bint has_interest(self, bytes subject)
