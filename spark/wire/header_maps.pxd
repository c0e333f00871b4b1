# Header blocks as a column of maps. See header_maps.py.
cimport cython
from headwater.spark.wire.arrow_columns cimport Buffer, TextColumn

@cython.final
cdef class HeaderMaps:
    cdef Py_ssize_t pairs           # of names and values, in all maps
    cdef Buffer offsets             # int32: the pair at which a map begins
    cdef TextColumn keys
    cdef TextColumn values
    cdef int put(self, char* block, Py_ssize_t size) except? -1
    cdef int put_line(self, char* block, Py_ssize_t at, Py_ssize_t stop, Py_ssize_t first) except? -1
    cdef bytes cell(self, TextColumn column, Py_ssize_t index)
    cdef bint same_key(self, Py_ssize_t left, Py_ssize_t right) except? -1
    cdef int join_repeated(self, Py_ssize_t first) except? -1
    cdef int cut(self, TextColumn column, Py_ssize_t pairs) except? -1
    cdef tuple drain(self)
