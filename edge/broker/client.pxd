from headwater.edge.broker.account cimport Account
from headwater.edge.broker.authorize cimport Login
from headwater.edge.broker.conn cimport Conn
from headwater.edge.kernel.kernel cimport Endpoint, Kernel, Msg, Sink

cdef class ClientSub(Sink):
    cdef public bytes sid
    cdef bytes middle                   # b" <sid> "
    cdef public unsigned long long maximum      # deliveries after which it ends; 0 is unlimited
    cdef public bint checked            # a deny overlaps it: each delivery is asked for
    cdef int count(self, ClientConn conn, Py_ssize_t size, Msg* m) except -1
    cdef int allowed(self, Msg* m) except -1

cdef class ClientConn(Conn):
    cdef public object server           # owner of sessions: login, info, limits
    cdef public Account account
    cdef public dict subs               # sid -> ClientSub
    cdef public dict last_subs          # what they were when they all ended; None before
    cdef public bint ready              # logged in
    cdef public bint verbose
    cdef public bint pedantic
    cdef public bint echo
    cdef public bint headers
    cdef public bint no_responders
    cdef public int protocol
    cdef bint warned                    # pedantic: of the publication that is not whole yet
    cdef public bint first_ping_seen
    cdef public object identity         # security's answer to the login
    cdef public Login principal         # what it may do
    cdef public dict options            # CONNECT fields
    cdef public Py_ssize_t max_payload
    cdef public Py_ssize_t max_control_line
    cdef public Py_ssize_t max_subscriptions
    cdef public int pings_out
    cdef bytes mapped_from              # what the message in hand was published on; None unmapped
    cdef bytes mapped_to                # and where that led
    cdef public object trace_dest       # the account's (subject, percent) for `traceparent`; None
    cdef public bint wants_responses    # permissions carry allow_responses
    cdef Py_ssize_t message(self, const unsigned char* line, Py_ssize_t begin, Py_ssize_t n, const unsigned char* end, Py_ssize_t room, bint with_headers) except? -2
    cdef Py_ssize_t broken(self) except? -2
    cdef int publish(self, Msg* m) except -1
    cdef bint skips(self, Msg* m) except -1
    cdef Py_ssize_t route_with_headers(self, Msg* m) except -1
    cdef Py_ssize_t publish_traced(self, Msg* m) except -1
    cdef int remap(self, Msg* m) except -1
    cdef int publish_denied(self, Msg* m) except -1
    cdef int reply_denied(self, Msg* m) except -1
    cdef int answer_no_responders(self, Msg* m) except -1
    cdef Py_ssize_t control(self, const unsigned char* data, Py_ssize_t n) except? -2
    cdef Py_ssize_t whole(self, const unsigned char* data, Py_ssize_t n, const char* name, Py_ssize_t begin, Py_ssize_t end) except? -2
    cdef int verb(self, const char* name, bytes argument) except -1
    cdef int fail(self, str error, str reason) except -1
    cdef int acknowledge(self) except -1
