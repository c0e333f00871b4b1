# Who waits for batches of the log. See log_waiters.py.
from headwater.edge.kernel.kernel cimport Kernel

cdef class Waiters:
    cdef Kernel kernel
    cdef list waiting                   # (batch, Task or callable)
    cdef int add(self, unsigned long long batch, object waiter) except -1
    cdef int release(self, unsigned long long batch) except -1
    cdef int let_go(self, object waiter) except -1
