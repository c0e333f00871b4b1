# What the places and sizes of a page's messages say of each other. See page_spans.py.

cdef enum:
    SPAN_ENTRIES = 256                  # of a page
    SPAN_STRIDE = 16                    # entries from one that has its place to the next
    RATIO_BITS = 8                      # of a ratio, below a whole
    SPAN_MARKS = 15                     # entries of a page that do, besides its first

cdef struct Spans:                      # of 256 entries; `fit_spans` puts what is stored over what is given
    unsigned long long place[SPAN_ENTRIES]  # location in units; then the span, less `span_least`
    unsigned long long body[SPAN_ENTRIES]   # bytes that lie there; then the rest, less `rest_least`
    unsigned long long size[SPAN_ENTRIES]   # headers and payload; then 0 if plain, or beyond `size_least`
    unsigned char state[SPAN_ENTRIES]   # SPAN_GONE, SPAN_PLAIN or SPAN_PACKED
    unsigned long long jump             # units by which the entries behind one are further off, or 0
    unsigned long long begin            # where entry 0 would lie, in units
    unsigned int span_least             # what every span has at least, in units
    unsigned int rest_least             # what every span has at least beyond its body, in bytes
    unsigned int size_least             # SIZE_ZERO, and what is added to a packed entry's size
    int jump_at                         # the entry before the jump
    unsigned int ratio                  # bytes of size, times 256, for a byte of a packed body
    unsigned int span_bits              # of a span
    unsigned int rest_bits              # of a rest
    unsigned int size_bits              # of a size
    bint mixed                          # there are plain entries

cdef enum:
    SPAN_GONE = 0                       # nothing is stored
    SPAN_PLAIN = 1                      # the body has the bytes that `size` says
    SPAN_PACKED = 2                     # it is compressed or sealed
    SIZE_ZERO = 0x80000000              # in `size_least`, since sizes can be below what is predicted

cdef bint fit_spans(Spans* spans, int first, int last, int shift) noexcept nogil
