cdef Py_ssize_t put_number(unsigned char* out, unsigned long long value) noexcept nogil
cdef Py_ssize_t parse_size(const unsigned char* text, Py_ssize_t n) noexcept nogil
cdef long long parse_number(const unsigned char* text, Py_ssize_t n) noexcept nogil
