# Messages in memory. See memory.py.
from headwater.edge.storage.index.store cimport MessageStore

cdef struct Slab:                       # at the start of its own aligned block
    Slab* after
    Slab* before
    unsigned int used                   # bytes, this header included
    unsigned int dead                   # bytes of items that were released

cdef struct Item:                       # before each body in a slab
    unsigned int low                    # sequence, in two halves so that bodies need no padding
    unsigned int high
    unsigned int size                   # of the body

cdef class MemoryStore(MessageStore):
    cdef Slab* active                   # the newest; older ones hang on `before`
    cdef unsigned char* allocate(self, unsigned long long sequence, Py_ssize_t size, unsigned int* flags)
    cdef Slab* new_slab(self)
    cdef int drop_slab(self, Slab* slab) except -1
    cdef int evacuate(self, Slab* slab) except -1
    cdef int free_all(self) except -1
