cdef extern from "sys/socket.h" nogil:
    Py_ssize_t recv(int fd, void* buffer, size_t size, int flags)
    Py_ssize_t send(int fd, const void* buffer, size_t size, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL
