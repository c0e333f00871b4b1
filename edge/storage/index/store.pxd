# The face of a stream's storage; memory and file stores implement it. See store.py.
from headwater.edge.kernel.kernel cimport Kernel, Msg, Task
from headwater.edge.storage.index.filter cimport Filter
from headwater.edge.storage.index.index cimport IndexEntry, MessageIndex

cdef enum:
    NOT_WRITTEN = 0xFFFFFFFFFFFFFFFF    # see `unsafe_removal`

cdef struct Record:                     # pointers are valid until the next call on the same store
    unsigned long long sequence
    long long timestamp                 # ns since the epoch
    const unsigned char* subject
    Py_ssize_t subject_len
    const unsigned char* body           # header block followed by the payload
    Py_ssize_t header_len
    Py_ssize_t size                     # header_len + payload length
    unsigned int subject_id             # for Filter.matches_id

cdef class StoredMessage:
    cdef readonly bytes subject
    cdef readonly bytes headers         # whole block, b"" without headers
    cdef readonly bytes payload
    cdef readonly unsigned long long sequence
    cdef readonly long long timestamp

cdef class Usage:                       # what all stores of one kind hold together
    cdef public unsigned long long bytes
    cdef public unsigned long long limit

# first_seq, last_seq, messages, bytes, first_ts and last_ts come from MessageIndex.
cdef class MessageStore(MessageIndex):
    cdef Kernel kernel
    cdef public unsigned long long committed    # every sequence up to here may be acknowledged
    cdef readonly Task listener                 # scheduled when `committed` grew or the store failed; None
    cdef int listener_stage                     # of one that is alone
    cdef public object failure                  # StoreError that stops appends (full disk, failed sync); None
    cdef public long long sync_delay_ns         # how long the sync of what is stored may wait
    cdef public bint acks_written               # `committed` grows when a message is written, not synced
    cdef public dict lost                       # sequence -> reason, for damaged messages
    cdef public bint closed
    cdef public str incarnation                 # hex; names this making of the stream
    cdef Usage usage
    cdef public Filter handed_over              # for the next one who asks for its patterns; None
    cdef unsigned long long append(self, Msg* m, long long timestamp, unsigned long long sequence) except 0
    cdef int load(self, unsigned long long sequence, Record* out) except -1
    cdef int load_body(self, unsigned long long sequence, const IndexEntry* entry, Record* out) except -1
    cdef int remove(self, unsigned long long sequence, bint erase) except -1
    cdef int before_erase(self, unsigned long long sequence) except -1
    cdef int free_location(self, const IndexEntry* entry) except -1
    cdef int removed(self, unsigned long long sequence, bint interior) except -1
    cdef int check_append(self, Msg* m, unsigned long long sequence) except -1
    cdef unsigned long long last_for(self, const unsigned char* subject, Py_ssize_t n) except? 0
    cdef unsigned long long count_for(self, const unsigned char* subject, Py_ssize_t n) except? 0
    cdef unsigned long long first_for(self, const unsigned char* subject, Py_ssize_t n) except? 0
    cdef unsigned long long cost_of(self, unsigned long long sequence) except? 0
    cdef unsigned long long next_match(self, Filter filter, unsigned long long start) except? 0
    cdef unsigned long long count_match(self, Filter filter, unsigned long long start) except? 0
    cdef int scheduled_listener(self) except -1
    cdef unsigned long long unsafe_removal(self, unsigned long long first, unsigned long long last) except? 0
    cdef int when_safe(self, unsigned long long lsn, Task task) except -1
    cdef int move_to(self, unsigned long long first, unsigned long long last) except -1
    cpdef Filter filter(self, tuple patterns)
    cpdef StoredMessage get(self, unsigned long long sequence)
    cpdef bint delete(self, unsigned long long sequence, bint erase=*) except -1
