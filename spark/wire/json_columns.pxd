# JSON texts to columns. See json_columns.py.
from libc.stdint cimport int32_t

cdef enum:
    CELL_TEXT = 64

cdef struct Cell:                       # what came before the n-th value of the last object
    char[CELL_TEXT] text                # with the quotes and the colon
    Py_ssize_t size                     # 0: nothing known
    int target                          # the field, -1 for one that is not wanted

cdef struct Field:
    int kind
    int first                           # of its own fields, which stand one after the other
    int count                           # of them
    int guess                           # the one among them that is looked for first
    const char* name
    Py_ssize_t name_size
    long long filled                    # the last text that had it
    bint has_null
    char* values                        # of this batch: fixed width, bits, or bytes of texts
    unsigned char* valid                # bits
    int32_t* ends                       # of texts; the first one is 0
    Py_ssize_t used                     # bytes of texts
    Py_ssize_t capacity                 # for texts
    Cell* cells                         # of an object

cdef class JsonColumns:
    cdef Field* fields                  # the first one is the whole text
    cdef int count
    cdef list names                     # bytes, which `fields` point into
    cdef list values                    # bytearrays, by field
    cdef list valid
    cdef list ends
    cdef Py_ssize_t row                 # that is being filled
    cdef long long text                 # number of the text, over all batches
    cdef int lacking                    # the field that a text needs more room for; 0: none
    cdef list read_all(self, const char* offsets, const char* data, Py_ssize_t size, Py_ssize_t rows)
    cdef int begin(self, Py_ssize_t rows) except? -1
    cdef int grow(self, int place, Py_ssize_t size) except? -1
    cdef void put_null(self, int place) noexcept
    cdef void take_back(self) noexcept
    cdef int find(self, int place, const char* name, Py_ssize_t size) noexcept
    cdef const char* member(self, int place, int number, const char* at, const char* end, int* target) noexcept
    cdef const char* read_object(self, int place, const char* at, const char* end) noexcept
    cdef const char* read_value(self, int place, const char* at, const char* end) noexcept
    cdef const char* read_text(self, int place, const char* at, const char* end) noexcept
    cdef const char* read_number(self, int place, const char* at, const char* end) noexcept
