# How far the commit thread has come. See commit_progress.py.
from headwater.edge.storage.log.log_waiters cimport Waiters
from headwater.edge.storage.log.watermarks cimport Watermarks

cdef class CommitProgress:
    cdef public Watermarks watermarks   # what was acknowledged, for the next start
    cdef object pending                 # deque of batches that are not durable: batch, segment, end, chain, (store, last) pairs, bytes
    cdef object unwritten               # deque of those of them that count once they are written
    cdef Waiters waiters                # for batches to be durable
    cdef Waiters early_waiters          # for batches to be written
    cdef unsigned long long notified    # newest batch of which the thread tells when it is written
    cdef unsigned long long reached     # newest batch known to be written
    cdef unsigned long long durable     # number of the newest batch that is synced
    cdef unsigned int durable_segment   # number of the segment in which it ended
    cdef Py_ssize_t durable_end         # its end there, an offset
    cdef unsigned int durable_chain     # header checksum of its last record
    cdef unsigned long long durable_bytes   # bytes of records since the start that are synced
    cdef unsigned long long flushed     # such bytes that the thread has written, synced or not
    cdef int begin(self, unsigned long long batch, unsigned int segment, Py_ssize_t end, unsigned int chain) except -1
    cdef int hand_over(self, unsigned long long batch, unsigned int segment, Py_ssize_t end, unsigned int chain, list touched, unsigned long long written, bint notify) except -1
    cdef Py_ssize_t batches(self) except -1
    cdef int advance(self, unsigned long long written, unsigned long long synced) except -1
    cdef int advance_written(self, unsigned long long batch) except -1
    cdef int advance_durable(self, unsigned long long batch) except -1
    cdef bint await_durable(self, unsigned long long batch, object waiter) except -1
    cdef bint await_written(self, unsigned long long batch, object waiter) except -1
    cdef set forget_pending(self)
