from headwater.edge.kernel.kernel cimport Endpoint, Kernel, Msg, Sink
from headwater.edge.broker.match_cache cimport MatchCache
from headwater.edge.subjects.trie cimport Match, Trie

cdef void set_message(Msg* m, bytes subject, bytes body, Py_ssize_t header_len, bytes reply, bytes shown) noexcept


cdef class Account:
    cdef public str name
    cdef public Kernel kernel
    cdef public Trie trie
    cdef MatchCache cache               # by literal subject
    cdef MatchCache prefixes            # by the fixed part of subjects whose end is new every time
    cdef MatchCache endings             # such subjects where interest depends on the end
    cdef public unsigned long long generation   # grows with every change of interest
    cdef list watchers                  # objects told of interest that comes and goes
    cdef unsigned int doorkeeper[4096]
    cdef public object jetstream        # the account's JetStream, None without
    cdef public object mappings         # subject mappings, None without
    cdef public dict limits
    cdef public bytes domain_prefix     # of the alias of its JetStream's API; None without
    cdef public Py_ssize_t connections
    cdef public Py_ssize_t shadows      # subscriptions in accounts that it imports streams from
    cdef public Py_ssize_t turned       # shadows made or ended since `tires` was true
    cdef public bint system             # it administrates: its members may speak as servers do
    cdef public unsigned long long refused      # messages of the node itself that may not go on
    cdef public unsigned long long lookups      # of who wants a subject
    cdef public unsigned long long walks        # lookups that no cache answered
    cdef Match match_prefix(self, const unsigned char* subject, Py_ssize_t n, Py_ssize_t fixed)
    cdef int remember(self, MatchCache cache, const unsigned char* subject, Py_ssize_t n, Match found) except -1
    cdef Match match(self, const unsigned char* subject, Py_ssize_t n)
    cdef Py_ssize_t route(self, Msg* m, Endpoint sender, Match match, tuple only) except -1
    cdef Py_ssize_t publish(self, Msg* m, Endpoint sender) except -1
    cpdef Py_ssize_t send(self, bytes subject, bytes payload, bytes reply=*, bytes headers=*, bytes shown=*, Endpoint sender=*, bint own=*) except -1
    cdef forget(self, bytes subject)
    cdef Sink pick(self, tuple group, Msg* m, Endpoint sender, tuple only)
    cpdef bytes served_as(self, bytes subject)
    cdef bint remaps(self, const unsigned char* subject, Py_ssize_t n) noexcept
    cpdef bytes mapped(self, bytes subject)
    cpdef insert(self, Sink sink)
    cpdef remove(self, Sink sink)
    cpdef bint has_interest(self, bytes subject)
