# Packed pages that lie in mapped files. See page_spill.py.
from headwater.edge.storage.index.packed_page cimport PackedPage

cdef class SpillChunk:
    cdef object map                     # the file, mapped
    cdef unsigned char* begin           # where it is
    cdef Py_ssize_t used                # bytes
    cdef Py_ssize_t pages               # of these, how many are there still

cdef class PageSpill:
    cdef public Py_ssize_t most         # bytes of packed pages that may be kept on the heap
    cdef public Py_ssize_t kept         # bytes of those that are, of all indexes together
    cdef object folder                  # where the files are made
    cdef list chunks                    # SpillChunks, or None where all pages have gone
    cdef SpillChunk newest              # takes the next page; None before the first
    cdef unsigned int number            # of the newest
    cdef bint full                      # the device had no room at the last attempt
    cdef PackedPage* put(self, const PackedPage* page, Py_ssize_t size) noexcept
    cdef int drop(self, unsigned int number) except -1
