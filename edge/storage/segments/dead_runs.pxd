# See dead_runs.py.

cdef struct Span:
    unsigned long long first
    unsigned long long last

cdef int by_first(const void* a, const void* b) noexcept nogil
cdef Py_ssize_t unite(Span* spans, Py_ssize_t count) noexcept nogil
cdef Py_ssize_t cut(Span* runs, Py_ssize_t run_count, Span* wanted, Py_ssize_t wanted_count, Span* out) noexcept nogil
