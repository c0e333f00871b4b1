# Matches found again by subject. See match_cache.py.
cimport cython

from headwater.edge.subjects.trie cimport Match

@cython.final
cdef class MatchCache:
    cdef unsigned long long seed
    cdef unsigned int* hashes           # odd; 0 is an empty bucket
    cdef list keys
    cdef list matches
    cdef unsigned int mask
    cdef unsigned int count
    cdef unsigned int recent            # bucket that was found last
    cdef unsigned int* following        # by bucket: the one that was asked for next
    cdef bint holds(self, unsigned int bucket, const unsigned char* subject, Py_ssize_t n) noexcept
    cdef int allocate(self, unsigned int buckets) except -1
    cdef int vacancy(self, unsigned int h) noexcept
    cdef int find_bucket(self, unsigned int h, const unsigned char* subject, Py_ssize_t n) noexcept
    cdef Match find(self, const unsigned char* subject, Py_ssize_t n)
    cdef int put(self, const unsigned char* subject, Py_ssize_t n, Match match) except -1
    cdef int drop(self, const unsigned char* subject, Py_ssize_t n) except -1
    cdef int clear(self) except -1
