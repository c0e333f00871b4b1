# Open pages of the index become packed ones. See page_packing.py.
from headwater.edge.storage.index.packed_page cimport (
    COLUMNS,
    EIGHTS,
    FLAGS,
    JUMP,
    LOCATIONS,
    MARK_BITS,
    MICROSECONDS,
    MIXED,
    PAGE_ENTRIES,
    PAGE_SHIFT,
    PAGE_WORDS,
    SIZES,
    SLOPED,
    SPANS,
    SPAN_BITS,
    STEPS,
    TIMES,
    IndexEntry,
    PackedPage,
)

cdef PackedPage* pack_page(const IndexEntry* entries) noexcept nogil
