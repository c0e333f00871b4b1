# Messages of a log segment that its file holds in bundles or entries. See adopted_records.py.

cdef class Chunk:
    cdef unsigned char* image
    cdef Py_ssize_t capacity
    cdef Py_ssize_t used

cdef class AdoptedRecords:
    cdef list chunks                    # Chunks, the newest one last
    cdef list free                      # Chunks that an earlier segment needs no more
    cdef Py_ssize_t chunk_bytes         # of a new one
    cdef readonly dict ranges           # offset of an ADOPT or BUNDLE -> (address, end) of its records
    cdef readonly Py_ssize_t bytes      # of all records here
    cdef unsigned char* reserve(self, Py_ssize_t size)
    cdef int let_spare_go(self) except -1
    cdef int wipe(self, bint everything) except -1
