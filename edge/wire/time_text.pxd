# Moments as RFC 3339 text. See time_text.py.
cdef enum:
    TIME_CHARS = 40                     # of the longest text, and some

cdef void put_date(unsigned char* out, long long days) noexcept nogil
cdef Py_ssize_t put_time(unsigned char* out, long long ns) noexcept nogil
