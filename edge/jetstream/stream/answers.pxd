# What a stream owes its publishers. See answers.py.

cimport cython
from headwater.edge.broker.account cimport Account
from headwater.edge.jetstream.stream.puback cimport AckQueue
from headwater.edge.kernel.kernel cimport Msg, Task
from headwater.edge.storage.index.store cimport MessageStore

@cython.final
cdef class Answers:
    cdef str name                       # of the stream, as errors say it
    cdef Account account                # in which answers are published
    cdef MessageStore store             # says what is committed, and whether it has failed
    cdef Task releaser                  # calls `release`: the stream
    cdef readonly bytes head            # what every PubAck starts with, up to the sequence
    cdef AckQueue acks                  # answers that wait until messages are committed
    cdef AckQueue refusals              # answers that overtake `acks` while the store has failed
    cdef dict error_texts               # err_code -> PubAck payload of a constant error
    cdef bint no_ack                    # publishers get no answer
    cdef int owe_ack(self, Msg* m, unsigned long long sequence, int kind) except -1
    cdef int owe(self, Msg* m, unsigned long long sequence, bytes payload) except -1
    cdef int add(self, const unsigned char* reply, Py_ssize_t reply_len, unsigned long long sequence, int kind, bytes payload) except -1
    cdef int add_always(self, const unsigned char* reply, Py_ssize_t reply_len, unsigned long long sequence, int kind, bytes payload) except -1
    cdef int refuse(self, Msg* m, object kind) except -1
    cdef int refuse_with(self, Msg* m, object error) except -1
    cdef int add_refusal(self, Msg* m, bytes payload) except -1
    cdef int release(self, unsigned long long committed) except -1
