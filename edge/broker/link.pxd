# A link to another server. See link.py.
from headwater.edge.broker.account cimport Account
from headwater.edge.broker.authorize cimport Peer
from headwater.edge.broker.halts cimport Halts
from headwater.edge.broker.lanes cimport LanedConn
from headwater.edge.kernel.kernel cimport Endpoint, Kernel, Msg, Sink
from headwater.edge.subjects.trie cimport Match
from headwater.edge.wire.pieces cimport Pieces

cdef class RemoteSub(Sink):
    cdef public bytes account           # name of its account, for links that serve several; or None
    cdef public bytes origin            # cluster behind a leaf link of the peer that wants it; or None

cdef class Link(LanedConn):
    cdef public object session          # handshake and life of this link
    cdef public bint ready              # admitted: interest and messages may flow
    cdef public bint headers
    cdef public Peer principal          # what may pass
    cdef public object describe_node    # how a trace's events name this node
    cdef public dict subs               # what the peer wants: key of the kind of link -> RemoteSub
    cdef public Py_ssize_t max_payload
    cdef public Py_ssize_t max_control_line
    cdef public int pings_out
    cdef public long long pinged_ns     # when the outstanding PING was queued, monotonic ns
    cdef public long long rtt_ns        # of the last PING; 0 before the first
    cdef unsigned char letter           # the first one of its message and interest verbs
    cdef readonly bint named            # whether frames name an account before the subject
    cdef bint tells_origin              # whether frames may name a cluster before all else
    cdef bint collected                 # whether the message being routed goes to the peer
    cdef bytes name                     # account that it goes out for, when `named`
    cdef public bint holds_back         # whether the peer holds back what it is asked to
    cdef public bint in_pieces          # whether the peer knows frames in pieces
    cdef readonly Pieces pieces         # of the peer's frame that comes in pieces
    cdef readonly Halts halts           # what either end asked the other to hold back
    cdef bytes asked_subject            # the peer's, of a message with another one here; or None
    cdef list queues                    # the queue groups of the peer that were chosen for it
    cdef Py_ssize_t message(self, const unsigned char* line, Py_ssize_t n, const unsigned char* body, Py_ssize_t room) except? -2
    cdef Py_ssize_t piece_of_frame(self, const unsigned char* line, Py_ssize_t n, const unsigned char* body, Py_ssize_t room) except? -2
    cdef Py_ssize_t frame_from_pieces(self, bytes frame) except? -2
    cdef bint begins_message(self, unsigned char letter) noexcept
    cdef tuple receivers(self, const unsigned char* line, Py_ssize_t* starts, Py_ssize_t* ends, Py_ssize_t k, Py_ssize_t count, Msg* m)
    cdef int arrive(self, const unsigned char* name, Py_ssize_t n, Msg* m, tuple only, bytes origin) except -1
    cdef int inbound(self, const unsigned char* name, Py_ssize_t n, Msg* m, tuple only) except -1
    cdef int route(self, Account account, Msg* m, Match match, tuple only) except -1
    cdef int wait_for_room(self, Account account, Msg* m, Match match) except -1
    cdef int rest_for(self, Endpoint receiver) except -1
    cdef bytes asked_for(self, Account account)
    cdef int hold_producer(self, Msg* m) except -1
    cdef bytes written_for(self)
    cdef int route_traced(self, Account account, Msg* m, Match match, tuple only) except -1
    cdef bint may_leave(self, Msg* m) except -1
    cdef bytes origin_of(self, Msg* m)
    cdef bint published_in_bulk(self, Msg* m, Endpoint sender) except -1
    cdef int write(self, Msg* m, Endpoint sender) except -1
    cdef int verb(self, bytes line) except -1
    cpdef fail(self, str error, str reason)
