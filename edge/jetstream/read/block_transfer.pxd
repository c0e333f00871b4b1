# One answer to a block read. See block_transfer.py.
cimport cython
from headwater.edge.broker.account cimport Account
from headwater.edge.kernel.kernel cimport Endpoint, Kernel, Task
from headwater.edge.jetstream.stream.stream cimport Stream
from headwater.edge.storage.index.filter cimport Filter
from headwater.edge.storage.index.store cimport MessageStore, Record

cdef enum:
    SUBJECTS = 1                        # columns that may be left out
    PAYLOADS = 2
    HEADERS = 4
    LAST = 1                            # flag of a block: the answer ends with it
    RUNS = 8

cdef struct Run:                        # a column, growing
    unsigned char* data
    Py_ssize_t used
    Py_ssize_t capacity

@cython.final
cdef class BlockTransfer(Task):
    cdef Stream stream
    cdef MessageStore store
    cdef Account account
    cdef Kernel kernel
    cdef bytes reply
    cdef Filter filter                  # None: everything
    cdef object on_end                  # called once, when nothing more will be sent
    cdef unsigned long long at          # what is below was looked at
    cdef unsigned long long end
    cdef unsigned int columns
    cdef Py_ssize_t block_bytes         # a block is sent before it would pass this
    cdef Py_ssize_t left                # bytes that may still be sent
    cdef Py_ssize_t used                # bytes in the block that is being filled
    cdef unsigned int rows
    cdef Endpoint waiting_for           # a receiver that is slow
    cdef bint done
    cdef Run[RUNS] runs
    cdef Py_ssize_t cost(self, Py_ssize_t subject, Py_ssize_t headers, Py_ssize_t size) except -1
    cdef int step(self) except -1
    cdef int add(self, Record* record) except -1
    cdef int put(self, int column, const unsigned char* data, Py_ssize_t size) except -1
    cdef int grow(self, Run* run, Py_ssize_t need) except -1
    cdef int put_text(self, int column, const unsigned char* data, Py_ssize_t size) except -1
    cdef int begin(self) except -1
    cdef bytes pack(self, bint last)
    cdef int send(self, bint last) except -1
    cdef int finish(self) except -1
