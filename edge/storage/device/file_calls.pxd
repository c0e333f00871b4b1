# System calls on descriptors of either kind. See file_calls.py.

cdef Py_ssize_t read_some(int fd, unsigned char* into, Py_ssize_t length, long long offset) noexcept nogil
cdef Py_ssize_t write_some(int fd, const unsigned char* data, Py_ssize_t length, long long offset) noexcept nogil
cdef void begin_writing(int fd, long long offset, long long length) noexcept nogil
cdef int sync_file(int fd) noexcept nogil

cdef extern from "fcntl.h" nogil:
    enum:
        SYNC_FILE_RANGE_WRITE
    int sync_file_range(int fd, long long offset, long long count, unsigned int flags)
