# Large frames of a link in pieces. See pieces.py.

cdef Py_ssize_t pieces_spare(Py_ssize_t n, Py_ssize_t size) noexcept nogil
cdef Py_ssize_t put_pieces(unsigned char* frame, Py_ssize_t n, Py_ssize_t size) noexcept nogil

cdef class Pieces:
    cdef bytearray come                 # bytes of the frame that have come
    cdef readonly Py_ssize_t left       # how many are still to come; 0 between frames
    cdef bint add(self, const unsigned char* part, Py_ssize_t n, Py_ssize_t left) except -1
    cdef bytes whole(self)
