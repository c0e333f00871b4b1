# Columns in Arrow's layout. See arrow_columns.py.
cimport cython
from libc.stdint cimport int32_t, int64_t

@cython.final
cdef class Buffer:
    cdef bytearray data
    cdef char* ptr                  # of `data`
    cdef Py_ssize_t used            # bytes
    cdef Py_ssize_t capacity        # bytes
    cdef int renew(self, Py_ssize_t capacity) except? -1
    cdef int grow(self, Py_ssize_t extra) except? -1
    cdef int put(self, char* source, Py_ssize_t size) except? -1
    cdef int put_int32(self, int32_t value) except? -1
    cdef int put_int64(self, int64_t value) except? -1
    cdef tuple drain(self)

@cython.final
cdef class TextColumn:
    cdef Buffer offsets             # int32, the first one 0
    cdef Buffer data
    cdef int put(self, char* source, Py_ssize_t size) except? -1
    cdef int put_text(self, char* source, Py_ssize_t size) except? -1
    cdef tuple drain(self)
