# Many subject patterns, asked at once. See pattern_set.py.

cdef struct PatternNode:
    unsigned int parent                 # node of the tokens before
    unsigned int hash                   # of its own token and its parent
    unsigned int text                   # where its token begins in `texts`
    unsigned int size
    unsigned int star                   # child for any token; 0
    unsigned int literals               # children with a token of their own
    bint ends                           # a pattern ends here
    bint tail                           # a pattern goes on with `>`

cdef class PatternSet:
    cdef PatternNode* nodes             # 0 is the root
    cdef unsigned int count
    cdef unsigned int capacity
    cdef unsigned int* buckets          # open addressing by hash; 0 is a free bucket
    cdef unsigned int mask
    cdef unsigned long long seed
    cdef bytes texts                    # all patterns, one after the other
    cdef const unsigned char* start     # of `texts`
    cdef unsigned long long steps       # nodes visited so far
    cdef unsigned int child(self, unsigned int parent, const unsigned char* token, Py_ssize_t n) noexcept nogil
    cdef void link(self, unsigned int number) noexcept nogil
    cdef int enter(self, Py_ssize_t start, Py_ssize_t end) except -1
    cdef unsigned int make(self, unsigned int parent, Py_ssize_t start, Py_ssize_t n) except 0
    cdef bint matches(self, const unsigned char* subject, Py_ssize_t n) noexcept nogil
    cdef bint below(self, unsigned int node, const unsigned char* subject, Py_ssize_t at, Py_ssize_t n) noexcept nogil
