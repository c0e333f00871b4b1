"""A page of the index in few bytes: 128 entries as columns of numbers with few bits each.

What messages of a stream have in common costs nothing: the distance to what a line through the
page's first and last value predicts (location, time), or to the column's least value (all others),
is kept in as many bits as the largest of them needs. Every entry is read without its neighbours.
An entry that is taken out only loses its bit in `alive`.
"""

import cython
from cython.cimports.libc.stdlib import malloc
from cython.cimports.libc.string import memcpy, memset

# Bits of a value that is read in one piece at any bit of a byte.
WIDTH_MAX = cython.declare(cython.uint, 57)
# Reading in pieces of eight bytes goes so far beyond the last column.
PADDING = cython.declare(cython.Py_ssize_t, 8)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def value_of(
    entry: cython.pointer(cython.const[IndexEntry]), column: cython.int
) -> cython.ulonglong:
    """What a column holds of an entry."""
    if column == 0:
        return entry.location
    if column == 1:
        return cython.cast(cython.ulonglong, entry.timestamp)
    if column == 2:
        return entry.size
    if column == 3:
        return entry.header_len
    if column == 4:
        return entry.subject
    if column == 5:
        return entry.next
    if column == 6:
        return entry.prev
    return entry.flags


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def bits_of(value: cython.ulonglong) -> cython.uint:
    """Bits that a value needs; a width that `stored` can read."""
    width: cython.uint = 0
    while value:
        value >>= 1
        width += 1
    return 64 if width > WIDTH_MAX else width


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def place_of(
    page: cython.pointer(cython.const[PackedPage]), column: cython.int
) -> cython.Py_ssize_t:
    """Where a column begins, in bytes behind the page's struct."""
    bits: cython.Py_ssize_t = 0
    i: cython.int
    for i in range(column):
        bits += page.width[i]
    return bits * (PAGE_ENTRIES // 8)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def stored(
    page: cython.pointer(cython.const[PackedPage]), column: cython.int, i: cython.int
) -> cython.ulonglong:
    """A value of a column."""
    width: cython.int = page.width[column]
    value: cython.ulonglong
    raw: cython.ulonglong
    bit: cython.int
    if column < SLOPED:
        value = page.base[column] + page.slope[column] * i
    else:
        value = page.least[column - SLOPED]
    if width == 0:
        return value
    bit = i * width
    memcpy(
        cython.address(raw),
        cython.cast(cython.p_const_uchar, page)
        + cython.sizeof(PackedPage) + place_of(page, column) + (bit >> 3),
        8,
    )  # fmt: skip
    if width == 64:
        return value + raw
    return value + ((raw >> (bit & 7)) & ((cython.cast(cython.ulonglong, 1) << width) - 1))


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fit_column(
    entries: cython.pointer(cython.const[IndexEntry]),
    page: cython.pointer(PackedPage),
    column: cython.int,
    first: cython.int,
    last: cython.int,
) -> cython.int:
    """Set base, slope and width of a column. `first` and `last` are its outermost entries."""
    base: cython.ulonglong = value_of(cython.address(entries[first]), column)
    slope: cython.ulonglong = 0
    least: cython.longlong = 0
    most: cython.longlong = 0
    off: cython.longlong
    i: cython.int
    if column < SLOPED and last > first:
        off = cython.cast(
            cython.longlong, value_of(cython.address(entries[last]), column) - base
        )
        slope = cython.cast(cython.ulonglong, off // cython.cast(cython.longlong, last - first))
        page.slope[column] = slope
    for i in range(first, last + 1):
        if entries[i].subject:
            off = cython.cast(
                cython.longlong,
                value_of(cython.address(entries[i]), column) - base - slope * (i - first),
            )
            least = min(least, off)
            most = max(most, off)
    base += cython.cast(cython.ulonglong, least) - slope * first
    if column < SLOPED:
        page.base[column] = base
    else:
        page.least[column - SLOPED] = cython.cast(cython.uint, base)
    page.width[column] = bits_of(
        cython.cast(cython.ulonglong, most) - cython.cast(cython.ulonglong, least)
    )
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def pack_page(entries: cython.pointer(cython.const[IndexEntry])) -> cython.pointer(PackedPage):
    """A page that holds what `PAGE_ENTRIES` entries hold; NULL without memory for it, or when
    none of them is alive."""
    page: PackedPage
    made: cython.pointer(PackedPage)
    first: cython.int = 0
    last: cython.int = PAGE_ENTRIES - 1
    column: cython.int
    size: cython.Py_ssize_t = 0
    i: cython.int
    while first < PAGE_ENTRIES and entries[first].subject == 0:
        first += 1
    if first == PAGE_ENTRIES:
        return cython.NULL
    while entries[last].subject == 0:
        last -= 1
    memset(cython.address(page), 0, cython.sizeof(PackedPage))
    for i in range(first, last + 1):
        if entries[i].subject:
            page.alive[i >> 6] |= cython.cast(cython.ulonglong, 1) << (i & 63)
    for column in range(COLUMNS):
        fit_column(entries, cython.address(page), column, first, last)
        size += page.width[column] * (PAGE_ENTRIES // 8)
    made = cython.cast(
        cython.pointer(PackedPage), malloc(cython.sizeof(PackedPage) + size + PADDING)
    )
    if made == cython.NULL:
        return cython.NULL
    memcpy(made, cython.address(page), cython.sizeof(PackedPage))
    memset(made + 1, 0, size + PADDING)
    for column in range(COLUMNS):
        if page.width[column]:
            write_column(entries, made, column, first, last)
    return made


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def packed_bytes(page: cython.pointer(cython.const[PackedPage])) -> cython.Py_ssize_t:
    """Memory that a page takes."""
    return cython.sizeof(PackedPage) + place_of(page, COLUMNS) + PADDING


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_column(
    entries: cython.pointer(cython.const[IndexEntry]),
    page: cython.pointer(PackedPage),
    column: cython.int,
    first: cython.int,
    last: cython.int,
) -> cython.int:
    """Write the values of a column; those of entries that are not alive stay 0."""
    at: cython.p_uchar = cython.cast(cython.p_uchar, page + 1) + place_of(page, column)
    width: cython.int = page.width[column]
    slope: cython.ulonglong = 0
    base: cython.ulonglong
    off: cython.ulonglong
    raw: cython.ulonglong
    bit: cython.int
    i: cython.int
    if column < SLOPED:
        base, slope = page.base[column], page.slope[column]
    else:
        base = page.least[column - SLOPED]
    for i in range(first, last + 1):
        if entries[i].subject:
            off = value_of(cython.address(entries[i]), column) - base - slope * i
            bit = i * width
            memcpy(cython.address(raw), at + (bit >> 3), 8)
            raw |= off << (bit & 7)
            memcpy(at + (bit >> 3), cython.address(raw), 8)
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def unpack_entry(
    page: cython.pointer(cython.const[PackedPage]), i: cython.int, out: cython.pointer(IndexEntry)
) -> cython.int:
    """Entry `i` of a page; all zero when it is not alive."""
    if not (page.alive[i >> 6] >> (i & 63)) & 1:
        memset(out, 0, cython.sizeof(IndexEntry))
        return 0
    out.location = stored(page, 0, i)
    out.timestamp = cython.cast(cython.longlong, stored(page, 1, i))
    out.size = cython.cast(cython.uint, stored(page, 2, i))
    out.header_len = cython.cast(cython.uint, stored(page, 3, i))
    out.subject = cython.cast(cython.uint, stored(page, 4, i))
    out.next = cython.cast(cython.uint, stored(page, 5, i))
    out.prev = cython.cast(cython.uint, stored(page, 6, i))
    out.flags = cython.cast(cython.uint, stored(page, 7, i))
    return 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def unpack_page(
    page: cython.pointer(cython.const[PackedPage]), entries: cython.pointer(IndexEntry)
) -> cython.int:
    """All `PAGE_ENTRIES` entries of a page."""
    i: cython.int
    for i in range(PAGE_ENTRIES):
        unpack_entry(page, i, cython.address(entries[i]))
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def unpack_subjects(
    page: cython.pointer(cython.const[PackedPage]), out: cython.p_uint
) -> cython.int:
    """The subjects of all `PAGE_ENTRIES` entries; 0 for one that is not alive."""
    i: cython.int
    for i in range(PAGE_ENTRIES):
        out[i] = 0
        if (page.alive[i >> 6] >> (i & 63)) & 1:
            out[i] = cython.cast(cython.uint, stored(page, 4, i))
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def next_bit(page: cython.pointer(cython.const[PackedPage]), i: cython.int) -> cython.int:
    """First entry at or after `i` that is alive; PAGE_ENTRIES when there is none."""
    while i < PAGE_ENTRIES:
        if page.alive[i >> 6] >> (i & 63) == 0:
            i = (i | 63) + 1
        elif (page.alive[i >> 6] >> (i & 63)) & 1:
            return i
        else:
            i += 1
    return PAGE_ENTRIES


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def bits_between(
    page: cython.pointer(cython.const[PackedPage]), first: cython.int, last: cython.int
) -> cython.int:
    """How many entries from `first` to `last` are alive, both included."""
    total: cython.int = 0
    i: cython.int
    for i in range(first, last + 1):
        total += cython.cast(cython.int, (page.alive[i >> 6] >> (i & 63)) & 1)
    return total
