# How the commit log goes on when it cannot be written. See log_restart.py.
from headwater.edge.storage.log.commit_log cimport CommitLog
from headwater.edge.storage.log.log_segment cimport LogSegment

cdef class LogRestart:
    cdef CommitLog log
    cdef public double retry_delay      # seconds until the next attempt
    cdef public object on_dead_weight   # called while the device is full: give back what is dead
    cdef double say_at                  # by the loop's clock: when a lack of a file is logged again
    cdef object room_timer              # for the next look at a full device; None
    cdef int write_adopted_again(self, LogSegment segment, Py_ssize_t offset) except -1
