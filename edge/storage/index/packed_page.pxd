# A page of the index in few bytes. See packed_page.py.

cdef enum:
    PAGE_SHIFT = 7
    PAGE_ENTRIES = 128
    COLUMNS = 8
    SLOPED = 2                          # the first columns; what they hold grows with the sequence

cdef struct IndexEntry:                      # 40 bytes per stored message
    unsigned long long location            # address, or segment number << 32 | offset
    long long timestamp                 # ns since the epoch
    unsigned int size                   # header_len + payload length
    unsigned int header_len
    unsigned int subject                # number of the subject; 0: nothing stored here
    unsigned int next                   # distance to the next message of the subject, 0 at the end
    unsigned int prev                   # distance to the one before, 0 at the start
    unsigned int flags                  # IN_LOG, and above it: bytes of a packed body, or 0

cdef struct PackedPage:                      # 80 bytes, then the columns
    unsigned long long alive[2]            # a bit per entry
    unsigned long long base[SLOPED]
    unsigned long long slope[SLOPED]
    unsigned int least[COLUMNS - SLOPED]    # the base of columns that are not sloped
    unsigned char width[COLUMNS]        # bits of a value; 0: all are what base and slope say

cdef PackedPage* pack_page(const IndexEntry* entries) noexcept nogil
cdef Py_ssize_t packed_bytes(const PackedPage* page) noexcept nogil
cdef int unpack_page(const PackedPage* page, IndexEntry* entries) noexcept nogil
cdef int unpack_entry(const PackedPage* page, int i, IndexEntry* out) noexcept nogil
cdef int unpack_subjects(const PackedPage* page, unsigned int* out) noexcept nogil
cdef int next_bit(const PackedPage* page, int i) noexcept nogil
cdef int bits_between(const PackedPage* page, int first, int last) noexcept nogil
