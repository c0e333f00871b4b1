# Raw header blocks. See header_block.py.

cdef struct Slice:                      # n is -1 when the header is absent
    const unsigned char* at
    Py_ssize_t n

cdef Slice value_of(const unsigned char* line, Py_ssize_t n, Py_ssize_t key_len) noexcept nogil
cdef Py_ssize_t line_length(const unsigned char* at, Py_ssize_t n) noexcept nogil
cdef Slice find_header(const unsigned char* block, Py_ssize_t n, const unsigned char* key, Py_ssize_t key_len) noexcept nogil
cdef Py_ssize_t kept_length(Py_ssize_t n) noexcept nogil
cdef bytes extended(const unsigned char* body, Py_ssize_t header_len, Py_ssize_t size, bytes lines)
