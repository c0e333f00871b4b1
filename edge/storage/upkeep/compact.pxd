from headwater.edge.storage.log.commit_log cimport CommitLog

cdef class Compactor:
    cdef CommitLog log
    cdef object background
    cdef list queue                     # (store, segment, segment to take over or None)
    cdef public object on_gone          # called with a store that has a segment less; gives the lsn
    cdef bint working
    cdef public bint stopped
    cdef public unsigned long long rewritten
