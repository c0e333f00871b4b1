# A set of subject patterns bound to one stream's index. See filter.py.
from headwater.edge.storage.index.index cimport IndexEntry, MessageIndex
from headwater.edge.subjects.pattern_set cimport PatternSet

cdef enum:
    CURSORS = 16

cdef struct Cursor:                     # where the search for one subject stands
    unsigned long long stamp            # of the subject that this is about
    unsigned long long start            # what was asked for
    unsigned long long found            # and found

cdef class Filter:
    cdef MessageIndex index
    cdef public tuple patterns          # bytes; () matches every subject
    cdef PatternSet together            # the same, asked at once; None for few
    cdef bint exact                     # the same have no wildcard
    cdef readonly bint literal                   # few patterns, none with a wildcard: no table needed
    cdef Cursor cursors[CURSORS]
    cdef unsigned int* hits             # numbers of matching subjects; some may have changed meaning
    cdef unsigned int hit_count
    cdef unsigned int hit_capacity
    cdef unsigned char* table           # per subject number: bit 0 matches, bit 1 is in `hits`
    cdef unsigned int table_size
    cdef unsigned long long seen        # how much of the index' list of fresh subjects was looked at
    cdef unsigned int swept             # subject number up to which a first look has come; 0: none goes on
    cdef unsigned long long swept_from  # what `seen` becomes at its end
    cdef int matches_id(self, unsigned int subject_id) except -1
    cdef bint matches_text(self, const unsigned char* text, Py_ssize_t n)
    cdef int refresh(self) except -1
    cdef int grow_table(self) except -1
    cdef int find_each(self) except -1
    cdef bint look(self, unsigned long long steps) except -1
    cdef int judge(self, unsigned int number) except -1
    cdef int add_hit(self, unsigned int number) except -1
    cdef unsigned long long next_of(self, unsigned int number, Cursor* cursor, unsigned long long start)
    cdef unsigned long long seek(self, unsigned int number, unsigned long long start)
    cdef unsigned long long next(self, unsigned long long start) except? 0
    cdef unsigned long long next_until(self, unsigned long long start, unsigned long long end) except? 0
    cdef unsigned long long next_of_few(self, unsigned long long start)
    cdef unsigned long long count(self, unsigned long long start) except? 0
    cdef unsigned long long count_hits(self) except? 0
    cdef unsigned long long scan(self, unsigned long long start, unsigned long long end)
    cdef unsigned long long scan_count(self, unsigned long long start, unsigned long long end)
    cdef unsigned long long count_few(self, unsigned long long start)
    cdef unsigned long long last_of(self, unsigned int number, unsigned long long end)
