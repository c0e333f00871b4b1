# Where a consumer is spoken to: acks, pull requests, flow control. See acks.py.
from headwater.edge.kernel.kernel cimport Endpoint, Msg, Sink
from headwater.edge.jetstream.consumer.delivery cimport Delivery

cdef class AckSink(Sink):
    cdef readonly Delivery consumer
    cdef Py_ssize_t prefix              # bytes of the subject before the numbers
    cdef bint extended                  # v2: more tokens may follow the numbers

cdef class PullSink(Sink):
    cdef readonly Delivery consumer

cdef class FlowSink(Sink):
    cdef readonly Delivery consumer
