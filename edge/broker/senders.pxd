# Who has much waiting for a link. See senders.py.
cdef enum:
    AHEAD_MAX = 16384                   # bytes that one sender may have waiting ahead of bulk

cdef class Sender:
    cdef Py_ssize_t ahead               # bytes that it may have waiting ahead of bulk
    cdef long long until                # its last bulk has gone when so many bytes of bulk have

cdef class Senders:
    cdef dict known                     # cid of a connection -> Sender
    cdef Py_ssize_t bound               # how many are known until some are forgotten
    cdef Sender last                    # the one asked for last, `last_cid`
    cdef unsigned long long last_cid
    cdef bint in_bulk(self, unsigned long long cid, Py_ssize_t size, Py_ssize_t ahead, long long queued, long long sent) except -1
    cdef Sender find(self, unsigned long long cid, long long sent)
    cdef int forget(self, long long sent) except -1
