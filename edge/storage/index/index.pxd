# Which messages a stream holds, in memory. See index.py.
from headwater.edge.storage.index.subject_table cimport Subject, SubjectTable

cdef enum:
    PAGE_SHIFT = 7
    PAGE_ENTRIES = 128
    FAR = 0xFFFFFFFF                    # a link that does not fit; found by scanning instead
    IN_LOG = 1                          # entry flag: `location` is the address of a record in the log

cdef struct IndexEntry:                      # 40 bytes per stored message
    unsigned long long location            # address, or segment number << 32 | offset
    long long timestamp                 # ns since the epoch
    unsigned int size                   # header_len + payload length
    unsigned int header_len
    unsigned int subject                # number of the subject; 0: nothing stored here
    unsigned int next                   # distance to the next message of the subject, 0 at the end
    unsigned int prev                   # distance to the one before, 0 at the start
    unsigned int flags                  # IN_LOG, and above it: bytes of a packed body, or 0

cdef struct Page:
    IndexEntry* entries                      # NULL while nothing of it is stored
    unsigned int alive

cdef class MessageIndex:
    cdef public unsigned long long first_seq    # JetStream's: last_seq + 1 when empty
    cdef public unsigned long long last_seq
    cdef public unsigned long long messages
    cdef public unsigned long long bytes        # as nats-server counts them
    cdef public long long first_ts              # of the first message, 0 when empty
    cdef public long long last_ts               # of the newest ever stored
    cdef SubjectTable names
    cdef Page* pages
    cdef Py_ssize_t page_count
    cdef Py_ssize_t page_capacity
    cdef unsigned long long page_base           # number of the page behind pages[0]
    cdef unsigned int overhead                  # bytes counted per message besides its content
    cdef unsigned int header_overhead           # further bytes when there are headers
    cdef IndexEntry* entry(self, unsigned long long sequence) noexcept nogil
    cdef IndexEntry* at(self, unsigned long long sequence) noexcept nogil
    cdef IndexEntry* prepare(self, unsigned long long sequence)
    cdef int add(self, unsigned long long sequence, unsigned int subject, IndexEntry* entry) except -1
    cdef int drop(self, unsigned long long sequence) except -1
    cdef int move_first(self, unsigned long long sequence) except -1
    cdef int free_pages(self) except -1
    cdef int clear(self, unsigned long long first) except -1
    cdef unsigned long long cost(self, unsigned int subject, IndexEntry* entry) noexcept nogil
    cdef unsigned long long next_alive(self, unsigned long long start) noexcept nogil
    cdef unsigned long long prev_alive(self, unsigned long long start) noexcept nogil
    cdef unsigned long long count_alive(self, unsigned long long start, unsigned long long end) noexcept nogil
    cdef unsigned long long scan_next(self, unsigned int subject, unsigned long long start) noexcept nogil
    cdef unsigned long long scan_prev(self, unsigned int subject, unsigned long long start) noexcept nogil
    cdef unsigned long long follow(self, unsigned long long sequence, IndexEntry* entry) noexcept nogil
    cdef unsigned long long precede(self, unsigned long long sequence, IndexEntry* entry) noexcept nogil
    cdef unsigned long long at_time(self, long long timestamp) noexcept nogil
