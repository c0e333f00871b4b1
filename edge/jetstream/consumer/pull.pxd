# Pull requests and the queue in which they wait. See pull.py.
from headwater.edge.broker.account cimport Account
from headwater.edge.subjects.trie cimport Match

cdef class PullRequest:
    cdef public bytes reply             # the inbox
    cdef public long long batch         # messages still wanted
    cdef public long long delivered     # messages sent so far
    cdef public long long max_bytes     # bytes still wanted, 0 or less without a limit
    cdef public long long expires       # monotonic ns, 0 for never
    cdef public long long heartbeat     # ns, 0 without
    cdef public long long heartbeat_at  # monotonic ns
    cdef public bint no_wait
    cdef public bint grouped            # came as JSON, so that group rules apply
    cdef public bint special            # has fields of a priority policy
    cdef public str group
    cdef public str pin
    cdef public long long min_pending
    cdef public long long min_ack_pending
    cdef public int priority
    cdef PullRequest next
    cdef Match match                    # who listens on `reply`
    cdef unsigned long long generation  # of the account's interest when `match` was made
    cdef bint inside                    # whether one of them is the node itself
    cdef bint wanted(self, Account account) except -1

cdef class PullQueue:
    cdef PullRequest head
    cdef PullRequest tail
    cdef public Py_ssize_t count
    cdef public Py_ssize_t limit        # the consumer's max_waiting
    cdef public Py_ssize_t no_waits     # requests in the queue that do not wait
    cdef bint prioritized
    cdef int add(self, PullRequest request) except -1
    cdef int put_back(self, PullRequest request) except -1
    cdef int insert(self, PullRequest request) except -1
    cdef int rotate(self) except -1
    cdef int served(self, PullRequest request, bint turned) except -1
    cdef int discard(self, PullRequest request) except -1
    cdef int remove(self, PullRequest before, PullRequest request) except -1

cdef bint match_inside(Match match) except -1
cdef PullRequest parse_request(const unsigned char* body, Py_ssize_t n, long long now)
