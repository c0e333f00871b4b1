from headwater.edge.storage.commit_log cimport CommitLog

cdef class Compactor:
    cdef CommitLog log
    cdef object background
    cdef list queue                     # (store, segment); each segment at most once
    cdef bint working
    cdef public bint stopped
    cdef public unsigned long long rewritten
