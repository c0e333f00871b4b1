# Which messages a stream holds, in memory. See index.py.
from headwater.edge.storage.index.packed_page cimport (
    PAGE_ENTRIES,
    PAGE_SHIFT,
    IndexEntry,
    PackedPage,
)
from headwater.edge.storage.index.page_spill cimport PageSpill
from headwater.edge.storage.index.subject_table cimport Subject, SubjectTable

cdef enum:
    FAR = 0xFFFFFFFF                    # the greatest distance that an entry says
    COPIES = 8
    IN_LOG = 1                          # entry flag: `location` is the address of a record in the log

cdef struct Page:                       # at most one of these; none while nothing of it is stored
    IndexEntry* entries                      # open: may be written
    PackedPage* packed
    unsigned int alive
    unsigned int spilled                # 1 + the number of the chunk in which `packed` lies; 0: on the heap

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
    # Entries of packed pages are handed out as copies, each valid until so many more were: nobody
    # keeps one across a call that may read as many.
    cdef IndexEntry copies[COPIES]
    cdef unsigned int next_copy
    cdef bint packs                             # old pages are packed; a store of files sets it
    cdef public PageSpill spill                 # takes packed pages from the heap; None: they stay there
    cdef unsigned long long unspilled           # number of the first page that may lie on the heap
    cdef unsigned long long* open_pages         # a ring of page numbers, as they were opened
    cdef Py_ssize_t open_first                  # the ring's oldest
    cdef public Py_ssize_t open_count
    cdef Py_ssize_t open_capacity               # a power of two
    cdef public Py_ssize_t open_least           # so many pages may always stay open
    cdef public Py_ssize_t open_wanted          # so many may now
    cdef const IndexEntry* entry(self, unsigned long long sequence) noexcept nogil
    cdef const IndexEntry* at(self, unsigned long long sequence) noexcept nogil
    cdef IndexEntry* opened(self, unsigned long long sequence)
    cdef IndexEntry* prepare(self, unsigned long long sequence)
    cdef int add(self, unsigned long long sequence, unsigned int subject, IndexEntry* entry) except -1
    cdef int join(self, unsigned long long sequence, const IndexEntry* entry) noexcept nogil
    cdef IndexEntry* open_entry(self, unsigned long long sequence) noexcept nogil
    cdef int remember_open(self, unsigned long long number) except -1
    cdef int pack_some(self) noexcept
    cdef int free_page(self, Py_ssize_t i) noexcept
    cdef int free_packed(self, Page* page) noexcept
    cdef int keep_packed(self, Page* page, unsigned long long number) noexcept
    cdef int spill_some(self) noexcept
    cdef int drop(self, unsigned long long sequence) except -1
    cdef int move_first(self, unsigned long long sequence) except -1
    cdef int free_pages(self) except -1
    cdef int clear(self, unsigned long long first) except -1
    cdef unsigned long long cost(self, unsigned int subject, const IndexEntry* entry) noexcept nogil
    cdef unsigned long long next_alive(self, unsigned long long start) noexcept nogil
    cdef unsigned long long prev_alive(self, unsigned long long start) noexcept nogil
    cdef unsigned long long count_alive(self, unsigned long long start, unsigned long long end) noexcept nogil
    cdef unsigned long long scan_next(self, unsigned int subject, unsigned long long start) noexcept nogil
    cdef unsigned long long scan_prev(self, unsigned int subject, unsigned long long start) noexcept nogil
    cdef unsigned long long follow(self, unsigned long long sequence, const IndexEntry* entry) noexcept nogil
    cdef unsigned long long precede(self, unsigned long long sequence, const IndexEntry* entry) noexcept nogil
    cdef unsigned long long at_time(self, long long timestamp) noexcept nogil
