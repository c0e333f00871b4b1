# A consumer: position, pending acks and delivery. See consumer.py.
from headwater.edge.broker.core cimport Endpoint, Kernel, Msg, Sink, Task
from headwater.edge.jetstream.stream cimport Stream
from headwater.edge.storage.store cimport Filter, MessageStore

cdef class Consumer(Task):              # as a Task: delivers what can be delivered
    cdef public str name
    cdef public bytes name_bytes
    cdef public Stream stream
    cdef public object config           # models.ConsumerConfig
    cdef public long long created_ns
    cdef public bint deleted
    cdef bint needs(self, unsigned long long sequence) except -1    # interest/work-queue: not yet acked and wanted here
    cdef int removed(self, unsigned long long sequence) except -1   # the stream dropped this message (limits, delete, purge)
