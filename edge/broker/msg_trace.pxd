# Tracing of single messages. See msg_trace.py.
from headwater.edge.broker.account cimport Account
from headwater.edge.kernel.kernel cimport Endpoint, Msg, Sink
from headwater.edge.subjects.trie cimport Match

cdef class Trace

cdef bint asks_for_trace(Msg* m) noexcept nogil
cdef Trace begin(Account account, Endpoint sender, Msg* m, object fallback)

cdef class CrossingSink(Sink):
    cdef int pass_traced(self, Msg* m, Endpoint sender, Trace trace) except -1

cdef class Trace:
    cdef Account account
    cdef bytes wanted                   # of the exporter's subjects, by a stream import; None
    cdef Account home                   # where the message came in
    cdef public object relay            # () -> subject by which servers beyond a crossing tell; None
    cdef Endpoint sender
    cdef public dict headers
    cdef public Py_ssize_t size
    cdef public bint only               # nobody gets the message
    cdef public bytes dest
    cdef str hop                        # the server before this one, by its place in the trace
    cdef public int hops                # servers that the message went on to
    cdef public list events
    cdef Py_ssize_t route(self, Msg* m, Match match, tuple only) except -1
    cdef Py_ssize_t within(self, Account account, Msg* m, object relay) except -1
    cdef int hide(self, Msg* m, Sink sink) except -1
    cdef int offer_one(self, Msg* m, Sink sink, bytes subject) except -1
    cdef int mapped(self, bytes subject, Msg* m) except -1
    cdef int offer(self, Msg* m, Sink sink, bytes block, bytes payload) except -1
    cdef int deliver(self, Msg* m, object sub) except -1
    cdef Py_ssize_t pass_on(self, Msg* m, list far, bytes block, bytes payload) except -1
    cdef int give(self, Msg* m, Sink sink, bytes block, bytes payload, Endpoint link=*) except -1
