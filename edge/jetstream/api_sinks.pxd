# Where API requests arrive. See api_sinks.py.
from headwater.edge.broker.account cimport Account
from headwater.edge.broker.core cimport CallbackSink, Endpoint, Msg, Sink
from headwater.edge.jetstream.stream cimport Stream

cdef class ApiSink(CallbackSink):
    pass

cdef class DomainSink(Sink):
    cdef Account account
    cdef Py_ssize_t prefix_len          # of `$JS.<domain>.API.`

cdef class LastSink(Sink):
    cdef Stream stream
    cdef Py_ssize_t prefix_len          # of `$JS.API.DIRECT.GET.<stream>.`
    cdef object fallback
    cdef int hand_on(self, Msg* m, Endpoint origin) except -1
    cdef int answer(self, Msg* m, Endpoint origin) except -1
