# Publishing stored messages again. See republish.py.
from headwater.edge.broker.account cimport Account
from headwater.edge.kernel.kernel cimport Msg
from headwater.edge.subjects.transform cimport Transform

cdef class Republisher:
    cdef bytes stream_name
    cdef Transform transform
    cdef bint headers_only
    cdef object waiting                 # deque of (sequence, subject, (copy, its header bytes))
    cdef tuple copy_of(self, Msg* m, unsigned long long sequence, long long timestamp, unsigned long long last)
    cdef int add(self, Msg* m, unsigned long long sequence, long long timestamp, unsigned long long last, unsigned long long pick) except -1
    cdef int release(self, Account account, unsigned long long committed) except -1
