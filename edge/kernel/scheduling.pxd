# The system's scheduler.

cdef extern from "<sched.h>" nogil:
    # Let others run that are waiting for this processor; returns at once when there are none.
    int sched_yield()
