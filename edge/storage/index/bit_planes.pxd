# Numbers of a page as planes of bits. See bit_planes.py.

cdef enum:
    PLANE_NUMBERS = 256
    PLANE_WORDS = 4                     # of 64 numbers each

cdef extern from *:
    int lowest_bit "__builtin_ctzll"(unsigned long long word) noexcept nogil
    int leading_zeros "__builtin_clzll"(unsigned long long word) noexcept nogil
    int bits_set "__builtin_popcountll"(unsigned long long word) noexcept nogil

cdef int put_number(unsigned long long* planes, int width, int i, unsigned long long number) noexcept nogil
cdef unsigned int number_at(const unsigned long long* planes, int width, int i) noexcept nogil
cdef unsigned long long equal_bits(const unsigned long long* planes, int width, int word, unsigned int number) noexcept nogil
cdef int all_numbers(const unsigned long long* planes, int width, unsigned int least, unsigned int* out) noexcept nogil
