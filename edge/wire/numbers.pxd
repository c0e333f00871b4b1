cdef Py_ssize_t put_number(unsigned char* out, unsigned long long value) noexcept nogil
cdef Py_ssize_t take_size(const unsigned char* text, Py_ssize_t n) noexcept nogil
cdef long long take_number(const unsigned char* text, Py_ssize_t n) noexcept nogil
