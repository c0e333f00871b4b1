# Where API requests arrive. See api_sinks.py.
from headwater.edge.broker.account cimport Account
from headwater.edge.kernel.kernel cimport CallbackSink, Endpoint, Msg, Sink

cdef class ApiSink(CallbackSink):
    pass

cdef class DomainSink(Sink):
    cdef Account account
