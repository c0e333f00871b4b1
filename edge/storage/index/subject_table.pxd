# Subjects of one stream, numbered. See subject_table.py.

cdef struct Subject:
    unsigned char* text
    unsigned int size
    unsigned int hash
    unsigned long long count            # stored messages; 0 while nothing is stored
    unsigned long long first            # sequence of the oldest message
    unsigned long long last             # sequence of the newest message
    unsigned long long stamp            # unique per meaning of this number; grows

cdef enum:
    FOLLOWING = 128                     # a power of two

cdef class SubjectTable:
    cdef Subject* items                 # by number; 0 is never used
    cdef unsigned int used              # numbers handed out so far, 0 included
    cdef unsigned int capacity
    cdef unsigned int* unused           # numbers to hand out again
    cdef unsigned int unused_count
    cdef unsigned int unused_capacity
    cdef unsigned int* buckets          # open addressing; 0 is a free bucket
    cdef unsigned int mask
    cdef public unsigned int live       # subjects known now
    cdef unsigned long long stamps
    cdef unsigned int* fresh            # numbers in the order in which they got a meaning
    cdef unsigned int fresh_count
    cdef unsigned int fresh_capacity
    cdef unsigned long long fresh_base  # how many older entries of `fresh` were forgotten
    cdef unsigned long long seed
    cdef unsigned int recent            # number that `intern` gave last; 0
    cdef unsigned int following[FOLLOWING]  # by the low bits of a number: what was asked for next
    cdef bint means(self, unsigned int number, const unsigned char* text, Py_ssize_t n) noexcept nogil
    cdef unsigned int find(self, const unsigned char* text, Py_ssize_t n) noexcept nogil
    cdef unsigned int intern(self, const unsigned char* text, Py_ssize_t n) except 0
    cdef unsigned int enter(self, const unsigned char* text, Py_ssize_t n) except 0
    cdef int free_number(self, unsigned int number) except -1
    cdef int clear(self) except -1
    cdef int grow_buckets(self) except -1
    cdef unsigned int allocate_number(self) except 0
    cdef int add_fresh(self, unsigned int number) except -1
    cdef bytes text(self, unsigned int number)
