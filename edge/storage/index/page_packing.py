"""Open pages of the index become packed ones: each column the way that takes least."""

import cython
from cython.cimports.headwater.edge.storage.index.bit_planes import put_number
from cython.cimports.headwater.edge.storage.index.packed_page import (
    hint_next,
    marks_of,
    packed_bytes,
    place_of,
    planes_of,
    steps_bytes,
    steps_of,
)
from cython.cimports.headwater.edge.storage.index.page_spans import (
    SPAN_MARKS,
    SPAN_PACKED,
    SPAN_PLAIN,
    SPAN_STRIDE,
    Spans,
    fit_spans,
)
from cython.cimports.libc.stdlib import malloc
from cython.cimports.libc.string import memcpy, memset

# Bits of a value that is read in one piece at any bit of a byte.
WIDTH_MAX = cython.declare(cython.uint, 57)
MICROSECOND_NS = cython.declare(cython.ulonglong, 1000)
# Messages until a subject returns, from which on hints have 4, 6 and 8 bits.
NEAR_PAGES = cython.declare(cython.ulonglong, 3 * PAGE_ENTRIES // 2)
FAR_PAGES = cython.declare(cython.ulonglong, 14 * PAGE_ENTRIES)
FARTHEST_PAGES = cython.declare(cython.ulonglong, 240 * PAGE_ENTRIES)


@cython.cfunc
@cython.nogil
@cython.cdivision(True)
@cython.exceptval(check=False)
def value_of(
    page: cython.pointer(cython.const[PackedPage]),
    entry: cython.pointer(cython.const[IndexEntry]),
    column: cython.int,
) -> cython.ulonglong:
    """What a column of a page holds of an entry."""
    if column == 0:
        return entry.location >> 3 if page.coarse & EIGHTS else entry.location
    if column == 1:
        if page.coarse & MICROSECONDS:
            return cython.cast(cython.ulonglong, entry.timestamp) // MICROSECOND_NS
        return cython.cast(cython.ulonglong, entry.timestamp)
    if column == 2:
        return entry.size
    if column == 3:
        return entry.header_len
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
    base: cython.ulonglong = value_of(page, cython.address(entries[first]), column)
    slope: cython.ulonglong = 0
    least: cython.longlong = 0
    most: cython.longlong = 0
    off: cython.longlong
    i: cython.int
    if column < SLOPED and last > first:
        off = cython.cast(
            cython.longlong, value_of(page, cython.address(entries[last]), column) - base
        )
        slope = cython.cast(cython.ulonglong, off // cython.cast(cython.longlong, last - first))
        page.slope[column] = slope
    for i in range(first, last + 1):
        if entries[i].subject:
            off = cython.cast(
                cython.longlong,
                value_of(page, cython.address(entries[i]), column)
                - base
                - slope * (i - first),
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
@cython.cdivision(True)
@cython.exceptval(check=False)
def find_multiples(
    entries: cython.pointer(cython.const[IndexEntry]),
    page: cython.pointer(PackedPage),
    first: cython.int,
    last: cython.int,
) -> cython.int:
    """Set what the page counts in multiples, which all its entries are."""
    locations: cython.ulonglong = 0
    whole: cython.bint = True
    i: cython.int
    for i in range(first, last + 1):
        if entries[i].subject:
            locations |= entries[i].location
            whole = whole and entries[i].timestamp >= 0 and not entries[i].timestamp % 1000
    page.coarse = 0
    if locations & 7 == 0:
        page.coarse |= EIGHTS
    if whole:
        page.coarse |= MICROSECONDS
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fit_steps(
    entries: cython.pointer(cython.const[IndexEntry]),
    page: cython.pointer(PackedPage),
    first: cython.int,
    last: cython.int,
) -> cython.int:
    """Have times be steps where that takes less than their column, which was fitted."""
    before: cython.ulonglong = value_of(page, cython.address(entries[first]), TIMES)
    least: cython.ulonglong = before
    most: cython.ulonglong = before
    steps: cython.ulonglong = 1
    value: cython.ulonglong
    width: cython.uint
    i: cython.int
    for i in range(first, last + 1):
        if entries[i].subject:
            value = value_of(page, cython.address(entries[i]), TIMES)
            steps += value != before
            least, most = min(least, value), max(most, value)
            before = value
    width = bits_of(most - least)
    if steps_bytes(steps, width) < page.width[TIMES] * (PAGE_ENTRIES // 8):
        page.coarse |= STEPS
        page.width[TIMES] = 0
        page.base[TIMES] = least
        page.slope[TIMES] = steps << 8 | width
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fit_subjects(
    entries: cython.pointer(cython.const[IndexEntry]),
    page: cython.pointer(PackedPage),
    first: cython.int,
    last: cython.int,
) -> cython.int:
    """Set the least subject, the planes that subjects need, and the bits of hints."""
    least: cython.uint = entries[first].subject
    most: cython.uint = least
    known: cython.ulonglong = 0
    apart: cython.ulonglong = 0
    distance: cython.ulonglong
    i: cython.int
    for i in range(first, last + 1):
        if entries[i].subject:
            least = min(least, entries[i].subject)
            most = max(most, entries[i].subject)
            distance = max(entries[i].prev, entries[i].next)
            if distance:
                known += 1
                apart += distance
    page.subject = least
    page.planes = bits_of(most - least)
    page.hint = 8
    if page.planes == 0 or apart < NEAR_PAGES * known:
        page.hint = 0
    elif apart < FAR_PAGES * known:
        page.hint = 4
    elif apart < FARTHEST_PAGES * known:
        page.hint = 6
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def pack_page(entries: cython.pointer(cython.const[IndexEntry])) -> cython.pointer(PackedPage):
    """A page that holds what `PAGE_ENTRIES` entries hold; NULL without memory for it, or when
    none of them is alive."""
    page: PackedPage
    made: cython.pointer(PackedPage)
    spans: Spans
    first: cython.int = 0
    last: cython.int = PAGE_ENTRIES - 1
    column: cython.int
    size: cython.Py_ssize_t
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
    find_multiples(entries, cython.address(page), first, last)
    for column in range(COLUMNS):
        fit_column(entries, cython.address(page), column, first, last)
    fit_steps(entries, cython.address(page), first, last)
    choose_spans(entries, cython.address(page), cython.address(spans), first, last)
    fit_subjects(entries, cython.address(page), first, last)
    size = packed_bytes(cython.address(page))
    made = cython.cast(cython.pointer(PackedPage), malloc(size))
    if made == cython.NULL:
        return cython.NULL
    memcpy(made, cython.address(page), cython.sizeof(PackedPage))
    memset(made + 1, 0, size - cython.sizeof(PackedPage))
    for column in range(COLUMNS):
        if page.width[column] and not (page.coarse & SPANS and spanned(column)):
            write_column(entries, made, column, first, last)
    if page.coarse & SPANS:
        write_spans(made, cython.address(spans))
    write_subjects(entries, made, first, last)
    if page.coarse & STEPS:
        write_steps(entries, made, first, last)
    return made


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_values(
    column: cython.p_uchar,
    width: cython.int,
    values: cython.pointer(cython.const[cython.ulonglong]),
    count: cython.int,
) -> cython.int:
    """Write values with `width` bits where nothing was written before."""
    raw: cython.ulonglong
    i: cython.int
    if width:
        for i in range(count):
            memcpy(cython.address(raw), column + ((i * width) >> 3), 8)
            raw |= values[i] << ((i * width) & 7)
            memcpy(column + ((i * width) >> 3), cython.address(raw), 8)
    return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def spanned(column: cython.int) -> cython.bint:
    """Whether a column holds something else where a page has spans."""
    return column == LOCATIONS or column == SIZES or column == FLAGS


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def choose_spans(
    entries: cython.pointer(cython.const[IndexEntry]),
    page: cython.pointer(PackedPage),
    spans: cython.pointer(Spans),
    first: cython.int,
    last: cython.int,
) -> cython.int:
    """Have locations be spans where that takes less than the columns, which were fitted."""
    made: PackedPage
    i: cython.int
    memset(spans, 0, cython.sizeof(Spans))
    for i in range(first, last + 1):
        if entries[i].subject:
            if entries[i].flags & 1:  # it is in the log
                return 0
            spans.place[i] = value_of(page, cython.address(entries[i]), LOCATIONS)
            spans.size[i] = entries[i].size
            spans.body[i] = entries[i].flags >> 1 if entries[i].flags else entries[i].size
            spans.state[i] = SPAN_PACKED if entries[i].flags else SPAN_PLAIN
    if not fit_spans(spans, first, last, 3 if page.coarse & EIGHTS else 0):
        return 0
    memcpy(cython.address(made), page, cython.sizeof(PackedPage))
    made.coarse |= SPANS
    if spans.mixed:
        made.coarse |= MIXED
    if spans.jump:
        made.coarse |= JUMP
    made.base[LOCATIONS] = spans.begin
    made.slope[LOCATIONS] = (
        cython.cast(cython.ulonglong, spans.ratio) << SPAN_BITS | spans.span_least
    )
    made.least[SIZES - SLOPED] = spans.rest_least
    made.least[FLAGS - SLOPED] = spans.size_least
    made.width[LOCATIONS] = spans.span_bits
    made.width[SIZES] = spans.rest_bits
    made.width[FLAGS] = spans.size_bits
    if packed_bytes(cython.address(made)) < packed_bytes(page):
        memcpy(page, cython.address(made), cython.sizeof(PackedPage))
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_spans(
    page: cython.pointer(PackedPage), spans: cython.pointer(cython.const[Spans])
) -> cython.int:
    """Write what `fit_spans` found, and the marks."""
    data: cython.p_uchar = cython.cast(cython.p_uchar, page + 1)
    words: cython.pointer(cython.ulonglong) = marks_of(page)
    width: cython.int = page.width[LOCATIONS]
    marks: cython.ulonglong[SPAN_MARKS]
    total: cython.ulonglong = 0
    i: cython.int
    put_values(data, width, spans.place, PAGE_ENTRIES)
    put_values(data + place_of(page, SIZES), page.width[SIZES], spans.body, PAGE_ENTRIES)
    put_values(data + place_of(page, FLAGS), page.width[FLAGS], spans.size, PAGE_ENTRIES)
    if page.coarse & JUMP:
        words[0] = spans.jump << 8 | cython.cast(cython.ulonglong, spans.jump_at)
        words += 1
    if width:
        for i in range(SPAN_MARKS * SPAN_STRIDE):
            total += spans.place[i]
            if (i + 1) % SPAN_STRIDE == 0:
                marks[i // SPAN_STRIDE] = total
        put_values(cython.cast(cython.p_uchar, words), width + MARK_BITS, marks, SPAN_MARKS)
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_steps(
    entries: cython.pointer(cython.const[IndexEntry]),
    page: cython.pointer(PackedPage),
    first: cython.int,
    last: cython.int,
) -> cython.int:
    """Write each time once, and where it begins; the first one begins the page."""
    begins: cython.pointer(cython.ulonglong) = steps_of(page)
    times: cython.p_uchar = cython.cast(cython.p_uchar, begins + PAGE_WORDS)
    width: cython.int = page.slope[TIMES] & 0xFF
    before: cython.ulonglong = 0
    step: cython.int = -1
    value: cython.ulonglong
    raw: cython.ulonglong
    i: cython.int
    for i in range(first, last + 1):
        if not entries[i].subject:
            continue
        value = value_of(page, cython.address(entries[i]), TIMES)
        if step >= 0 and value == before:
            continue
        if step >= 0:
            begins[i >> 6] |= cython.cast(cython.ulonglong, 1) << (i & 63)
        step += 1
        before = value
        memcpy(cython.address(raw), times + ((step * width) >> 3), 8)
        raw |= (value - page.base[TIMES]) << ((step * width) & 7)
        memcpy(times + ((step * width) >> 3), cython.address(raw), 8)
    return 0


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
            off = value_of(page, cython.address(entries[i]), column) - base - slope * i
            bit = i * width
            memcpy(cython.address(raw), at + (bit >> 3), 8)
            raw |= off << (bit & 7)
            memcpy(at + (bit >> 3), cython.address(raw), 8)
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_subjects(
    entries: cython.pointer(cython.const[IndexEntry]),
    page: cython.pointer(PackedPage),
    first: cython.int,
    last: cython.int,
) -> cython.int:
    """Write subjects and hints; those of entries that are not alive stay 0."""
    planes: cython.pointer(cython.ulonglong) = planes_of(page)
    at: cython.ulonglong
    i: cython.int
    for i in range(first, last + 1):
        if entries[i].subject:
            put_number(planes, page.planes, i, entries[i].subject - page.subject)
            if page.hint and entries[i].next:
                at = i + cython.cast(cython.ulonglong, entries[i].next)
                hint_next(page, i, at >> PAGE_SHIFT)
    return 0
