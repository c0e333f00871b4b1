# Times and dates as RFC 3339 writes them. See json_times.py.
from libc.stdint cimport int32_t, int64_t

cdef bint read_time(const char* text, Py_ssize_t size, int64_t* micros) noexcept
cdef bint read_date(const char* text, Py_ssize_t size, int32_t* days) noexcept
