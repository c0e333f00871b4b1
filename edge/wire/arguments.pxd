# The words of a message line between servers. See arguments.py.

cdef int arguments(const unsigned char* line, Py_ssize_t n, Py_ssize_t* starts, Py_ssize_t* ends) noexcept nogil
