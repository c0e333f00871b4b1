# Messages delivered and not yet acknowledged. See pending.py.
cdef enum:
    ENTRY_ALIVE = 1                     # not yet acknowledged
    ENTRY_QUEUED = 2                    # waits in the queue to be delivered again

cdef struct PendingEntry:
    unsigned long long sequence         # in the stream
    unsigned long long consumer_seq     # of the first delivery
    long long since                     # monotonic ns from which the ack wait counts
    unsigned int deliveries
    unsigned int flags

cdef class PendingTable:
    cdef PendingEntry* items                   # items[head:end], in order of sequence
    cdef Py_ssize_t head
    cdef Py_ssize_t end
    cdef Py_ssize_t capacity
    cdef public Py_ssize_t count        # entries that are alive
    cdef public Py_ssize_t redelivered  # of them, delivered more than once
    cdef public Py_ssize_t queued       # of them, waiting to be delivered again
    cdef unsigned long long* queue      # sequences queue[queue_head:queue_end], first in first out
    cdef Py_ssize_t queue_head
    cdef Py_ssize_t queue_end
    cdef Py_ssize_t queue_capacity
    cdef PendingEntry* find(self, unsigned long long sequence) noexcept nogil
    cdef PendingEntry* first(self) noexcept nogil
    cdef int add(self, unsigned long long sequence, unsigned long long consumer_seq, long long since, unsigned int deliveries) except -1
    cdef int drop(self, PendingEntry* entry) noexcept nogil
    cdef int requeue(self, PendingEntry* entry) except -1
    cdef int unqueue(self, PendingEntry* entry) noexcept nogil
    cdef PendingEntry* next_queued(self) noexcept nogil
    cdef int clear(self) noexcept nogil
    cdef Py_ssize_t lower_bound(self, unsigned long long sequence) noexcept nogil
    cdef int make_room(self) except -1
