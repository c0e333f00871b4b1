# A look at the sockets before the loop sleeps. See busy_poll.py.

cdef extern from "<poll.h>" nogil:
    short POLLIN
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd*, unsigned long, int)

cdef class BusyPoll:
    cdef readonly int fd                # becomes readable when the loop has work; -1: nobody looks
    cdef int soon                       # reads in a row that came soon after the last
    cdef long long ended_ns             # when the last read was served, monotonic
    cdef long long resume_ns            # nobody looks before: others want this processor
    cdef long long pause_ns             # how long nobody looks the next time
    cdef int calm                       # looks in a row that found something, and lost no processor
    cdef readonly unsigned long long looks
    cdef readonly unsigned long long found
    cpdef int arrived(self, long long at_ns) except -1
    cpdef bint wanted(self, long long now) except -1
    cpdef int judge(self, bint ready, bint waited, bint held_up, long long now) except -1
    cdef int look(self) except -1
