# The window of known message ids. See dedupe.py.

cdef class DedupeWindow:
    cdef dict known                     # id -> sequence
    cdef object order                   # deque of (ns, id), oldest first
    cdef public long long window_ns
    cdef public bint loaded             # whether the ids of stored messages are in it
    cdef unsigned long long find(self, bytes msg_id, long long now_ns) except? 0
    cdef int put(self, bytes msg_id, unsigned long long sequence, long long now_ns) except -1
    cdef int expire(self, long long now_ns) except -1
