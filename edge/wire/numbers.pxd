cdef struct NumberText:
    unsigned long long value            # the number that was written last
    Py_ssize_t start                    # where its digits begin in `text`
    unsigned char text[40]              # they end at 20; what is behind is copied, and means nothing

cdef Py_ssize_t put_number(unsigned char* out, unsigned long long value) noexcept nogil
cdef Py_ssize_t put_kept(unsigned char* out, NumberText* kept, unsigned long long value) noexcept nogil
cdef Py_ssize_t put_moment(unsigned char* out, NumberText* seconds, unsigned long long ns) noexcept nogil
cdef Py_ssize_t parse_size(const unsigned char* text, Py_ssize_t n) noexcept nogil
cdef long long parse_number(const unsigned char* text, Py_ssize_t n) noexcept nogil
