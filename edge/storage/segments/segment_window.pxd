# The part of a stream's segments that was read last. See segment_window.py.
cdef class SegmentWindow:
    cdef unsigned char* bytes
    cdef Py_ssize_t capacity            # bytes of room
    cdef Py_ssize_t length              # bytes that were read
    cdef unsigned int number            # of the segment; 0: nothing of it counts
    cdef Py_ssize_t start               # offset in its file
    cdef bint used                      # since the last `drop_unused`
    cdef const unsigned char* find(self, unsigned int number, Py_ssize_t offset, Py_ssize_t need) noexcept
    cdef int fill(self, int fd, unsigned int number, Py_ssize_t offset, Py_ssize_t need) except -1
    cpdef int forget(self) except -1
    cdef int wipe(self, unsigned int number) noexcept
