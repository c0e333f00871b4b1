# What is asked of a replica, and waits until it may answer. See read_gate.py.
from headwater.edge.kernel.kernel cimport Kernel

cdef class ReadGate:
    cdef Kernel kernel
    cdef public object stream           # the replica's Stream, which another store may replace
    cdef public object ask              # callable: something waits of which nobody was asked
    cdef public list waiting            # (answer, account, reply, request), in the order of asking
    cdef readonly long long since       # monotonic ns at which the first of `waiting` came
    cdef Py_ssize_t weight              # of requests that wait
    cdef readonly Py_ssize_t held       # how many wait, those included that `drain` gave
    cdef long long sure_until           # monotonic ns: until then no other node can lead
    cdef long long sure_wall            # the same by the time of day
    cdef bint is_open(self) except -1
    cpdef hold(self, object answer, object account, bytes reply, object request, Py_ssize_t size)
