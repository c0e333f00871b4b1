cdef bint subject_matches(const unsigned char* pattern, Py_ssize_t np, const unsigned char* subject, Py_ssize_t ns) noexcept nogil
cdef bint is_literal(const unsigned char* subject, Py_ssize_t n) noexcept nogil
cdef bint is_valid(const unsigned char* subject, Py_ssize_t n) noexcept nogil
