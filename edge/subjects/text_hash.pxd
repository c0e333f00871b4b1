cdef unsigned int hash_text(unsigned long long seed, const unsigned char* text, Py_ssize_t n) noexcept nogil
