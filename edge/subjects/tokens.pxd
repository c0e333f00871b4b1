from libc.stdint cimport uint64_t
from libc.string cimport memcpy

# Not 0 when one of eight bytes may not stand in a word of a frame: a space, a control byte, DEL.
# One below 33 borrows from the highest bit of its place; DEL becomes zero by exclusive or, and
# borrows as well.
cdef inline uint64_t unclean(const unsigned char* text) noexcept nogil:
    cdef uint64_t eight, other
    memcpy(&eight, text, 8)
    other = eight ^ 0x7F7F7F7F7F7F7F7Fu
    return (
        ((eight - 0x2121212121212121u) & ~eight) | ((other - 0x0101010101010101u) & ~other)
    ) & 0x8080808080808080u

cdef bint subject_matches(const unsigned char* pattern, Py_ssize_t np, const unsigned char* subject, Py_ssize_t ns) noexcept nogil
cdef bint is_literal(const unsigned char* subject, Py_ssize_t n) noexcept nogil
cdef bint is_valid(const unsigned char* subject, Py_ssize_t n) noexcept nogil
cdef bint is_clean(const unsigned char* text, Py_ssize_t n) noexcept nogil
