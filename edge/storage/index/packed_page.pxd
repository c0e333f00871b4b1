# A page of the index in few bytes. See packed_page.py.

cdef enum:
    PAGE_SHIFT = 8
    PAGE_ENTRIES = 256
    PAGE_WORDS = 4                      # words of 64 bits with a bit per entry
    COLUMNS = 5                         # of values in few bits; subjects are in planes
    SLOPED = 2                          # the first columns; what they hold grows with the sequence

cdef enum:                              # columns
    LOCATIONS = 0
    TIMES = 1
    SIZES = 2
    FLAGS = 4

cdef enum:                              # of a page's `coarse`
    EIGHTS = 1                          # locations are counted in eight bytes
    MICROSECONDS = 2                    # times are counted in microseconds
    STEPS = 4                           # times are steps: `slope` has a step's bits, above 8 their number
    SPANS = 8                           # SIZES and FLAGS are rests and sizes; see page_spans.py
    MIXED = 16                          # there are spans, and a size of 0 is that of a plain entry
    JUMP = 32                           # there are spans, before their marks the jump, above 8 bits where

cdef enum:
    SPAN_BITS = 32                      # of the slope of spans: the least one, and above it the ratio
    MARK_BITS = 8                       # that a sum of 255 spans has beyond those of one

cdef struct IndexEntry:                      # 40 bytes per stored message
    unsigned long long location            # address, or segment number << 32 | offset
    long long timestamp                 # ns since the epoch
    unsigned int size                   # header_len + payload length
    unsigned int header_len
    unsigned int subject                # number of the subject; 0: nothing stored here
    unsigned int next                   # at least so far is the next message of the subject; 0: unknown
    unsigned int prev                   # at least so far is the one before; 0: unknown
    unsigned int flags                  # IN_LOG, and above it: bytes of a packed body, or 0

cdef struct PackedPage:                      # 88 bytes, then columns, planes of subjects, hints, and steps
    unsigned long long alive[PAGE_WORDS]   # a bit per entry
    unsigned long long base[SLOPED]
    unsigned long long slope[SLOPED]
    unsigned int least[COLUMNS - SLOPED]    # the base of columns that are not sloped
    unsigned int subject                # the least number of a subject
    unsigned char width[COLUMNS]        # bits of a value; 0: all are what base and slope say
    unsigned char planes                # bits of a subject's number above the least
    unsigned char hint                  # bits of a hint
    unsigned char coarse                # what columns count in multiples, and whether times are steps

cdef Py_ssize_t place_of(const PackedPage* page, int column) noexcept nogil
cdef unsigned long long* planes_of(const PackedPage* page) noexcept nogil
cdef unsigned long long* marks_of(const PackedPage* page) noexcept nogil
cdef unsigned long long* steps_of(const PackedPage* page) noexcept nogil
cdef Py_ssize_t steps_bytes(unsigned long long steps, unsigned int width) noexcept nogil
cdef Py_ssize_t packed_bytes(const PackedPage* page) noexcept nogil
cdef int unpack_page(const PackedPage* page, IndexEntry* entries) noexcept nogil
cdef int unpack_entry(const PackedPage* page, int i, IndexEntry* out) noexcept nogil
cdef unsigned int subject_at(const PackedPage* page, int i) noexcept nogil
cdef int unpack_subjects(const PackedPage* page, unsigned int* out) noexcept nogil
cdef int find_subject(const PackedPage* page, unsigned int subject, int i) noexcept nogil
cdef int find_subject_back(const PackedPage* page, unsigned int subject, int i) noexcept nogil
cdef int hint_next(PackedPage* page, int i, unsigned long long pages) noexcept nogil
cdef int next_bit(const PackedPage* page, int i) noexcept nogil
cdef int bits_between(const PackedPage* page, int first, int last) noexcept nogil
