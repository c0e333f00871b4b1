# A segment of the commit log with its image in memory. See log_segment.py.
from headwater.edge.storage.log.adopted_records cimport AdoptedRecords

cdef class LogSegment:
    cdef public unsigned int number
    cdef public int fd
    cdef int direct_fd                  # for aligned writes past the page cache; -1
    cdef public object slot             # log_files.LogSlot
    cdef unsigned char* image           # what the file holds, from its first byte
    cdef public Py_ssize_t capacity
    cdef public Py_ssize_t end          # where the next record goes, or where they ended
    cdef public unsigned int previous
    cdef public Py_ssize_t previous_end
    cdef public unsigned int previous_chain
    cdef public bint suspect            # a write or sync failed; the file is not used again
    cdef readonly AdoptedRecords adopted         # messages in its bundles and entries; None: none
    cdef AdoptedRecords adoptable(self)
