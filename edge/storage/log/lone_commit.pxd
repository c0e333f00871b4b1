# Commits of a lone publisher, on the event loop. See lone_commit.py.
from headwater.edge.kernel.kernel cimport Kernel, Task
from headwater.edge.storage.log.commit_thread cimport CommitThread

cdef class LoneCommit(Task):
    cdef Kernel kernel
    cdef CommitThread thread
    cdef object done                    # called when something completed or failed
    cdef bint always                    # not only for a lone publisher; for tests
    cdef int waits                      # batches in a row that somebody alone waited for
    cdef bint accepts(self, Py_ssize_t length, Py_ssize_t batches, long long delay_ns, bint notify) except -1
    cdef int leave(self) except -1
