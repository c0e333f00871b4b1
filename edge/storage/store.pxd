# The face of a stream's storage; memory and file stores implement it. See store.py.
from headwater.edge.broker.core cimport Msg, Task

cdef struct Record:                     # pointers are valid until the next call on the same store
    unsigned long long sequence
    long long timestamp                 # ns since the epoch
    const unsigned char* subject
    Py_ssize_t subject_len
    const unsigned char* body           # header block followed by the payload
    Py_ssize_t header_len
    Py_ssize_t size                     # header_len + payload length

cdef class Filter:                      # a set of subject patterns bound to one store
    cdef public tuple patterns          # bytes; () matches every subject
    cdef int matches_id(self, unsigned int subject_id) except -1

cdef class MessageStore:
    cdef public unsigned long long first_seq    # JetStream's: last_seq + 1 when empty
    cdef public unsigned long long last_seq
    cdef public unsigned long long messages
    cdef public unsigned long long bytes
    cdef public long long first_ts
    cdef public long long last_ts
    cdef public unsigned long long committed    # every sequence up to here is durable
    cdef public Task listener                   # scheduled when `committed` grew or the store failed; None
    cdef public object failure                  # StoreError that stops appends (full disk, failed sync); None
    cdef unsigned long long append(self, Msg* m, long long timestamp, unsigned long long sequence) except 0
    cdef int load(self, unsigned long long sequence, Record* out) except -1
    cdef int remove(self, unsigned long long sequence, bint erase) except -1
    cdef unsigned long long last_for(self, const unsigned char* subject, Py_ssize_t n) except? 0
    cdef unsigned long long count_for(self, const unsigned char* subject, Py_ssize_t n) except? 0
    cdef unsigned long long first_for(self, const unsigned char* subject, Py_ssize_t n) except? 0
    cdef unsigned long long next_match(self, Filter filter, unsigned long long start) except? 0
    cdef unsigned long long count_match(self, Filter filter, unsigned long long start) except? 0
    cpdef Filter filter(self, tuple patterns)
