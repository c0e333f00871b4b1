# Publish answers that wait for durability. See puback.py.
from headwater.edge.broker.account cimport Account

cdef enum:
    STORED = 0                          # a PubAck
    DUPLICATE = 1                       # a PubAck of an earlier message with the same id
    EMPTY = 2                           # an empty message: part of a batch was taken

cdef struct OwedAnswer:
    unsigned long long wait             # released when the store's `committed` has reached this
    unsigned long long sequence         # what the answer names
    Py_ssize_t payload_len              # of a payload kept in the arena; 0: a plain PubAck
    int reply_len
    int kind

cdef class AckQueue:
    cdef bytes head                     # `{"stream":"S","seq":`
    cdef unsigned char* line            # head and room for the number and tail
    cdef OwedAnswer* entries
    cdef Py_ssize_t first, count, capacity
    cdef unsigned char* arena           # reply (and payload) of each entry, in order
    cdef Py_ssize_t arena_start, arena_end, arena_capacity
    cdef int add(self, const unsigned char* reply, Py_ssize_t reply_len, unsigned long long wait, unsigned long long sequence, int kind, bytes payload) except -1
    cdef int release(self, Account account, unsigned long long committed) except -1
    cdef int send(self, Account account, OwedAnswer* entry, const unsigned char* reply) except -1
    cdef int skip(self, Py_ssize_t size) noexcept
    cdef int room(self, Py_ssize_t more) except -1
