cdef unsigned int table[8][256]
cdef unsigned int crc32c(unsigned int crc, const unsigned char* data, Py_ssize_t n) noexcept nogil
cdef unsigned int crc32c_tables(unsigned int crc, const unsigned char* data, Py_ssize_t n) noexcept nogil
