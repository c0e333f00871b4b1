"""A page of the index in few bytes: 256 entries as columns of numbers with few bits each.

What messages of a stream have in common costs nothing: the distance to what a line through the
page's first and last value predicts (location, time), or to the column's least value (all others),
is kept in as many bits as the largest of them needs. Every entry is read without its neighbours.
An entry that is taken out only loses its bit in `alive`.

Messages that came together have one time. Where that takes less, times are steps: a bit for each
entry that has another time than the one before, and behind these bits each such time once.

Subjects lie in planes (`bit_planes`), so a subject is found without reading the entries between.
How many pages on the next message of a subject is at least is a hint of few bits: exact when near,
else within a part of the distance. Hints have no more bits than pay for themselves where subjects
return after as many messages as they do in this page. They are written when the message comes.
"""

import cython
from cython.cimports.headwater.edge.storage.index.bit_planes import (
    all_numbers,
    bits_set,
    equal_bits,
    leading_zeros,
    lowest_bit,
    number_at,
    put_number,
)
from cython.cimports.libc.stdlib import malloc
from cython.cimports.libc.string import memcpy, memset

# Bits of a value that is read in one piece at any bit of a byte.
WIDTH_MAX = cython.declare(cython.uint, 57)
# Reading in pieces of eight bytes goes so far beyond the last column.
PADDING = cython.declare(cython.Py_ssize_t, 8)
# What a page counts in multiples: locations of eight bytes, times of a microsecond.
EIGHTS = cython.declare(cython.uint, 1)
MICROSECONDS = cython.declare(cython.uint, 2)
# Times are steps: `slope` has the bits of one, and above these 8 bits how many there are.
STEPS = cython.declare(cython.uint, 4)
TIMES = cython.declare(cython.int, 1)
MICROSECOND_NS = cython.declare(cython.ulonglong, 1000)
EVERY = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
# The greatest distance that an entry says.
FARTHEST = cython.declare(cython.ulonglong, 0xFFFF_FFFF)
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
    if column == TIMES and page.coarse & STEPS:
        return step_at(page, i)
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
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def steps_bytes(steps: cython.ulonglong, width: cython.uint) -> cython.Py_ssize_t:
    """What so many times of `width` bits take, with the bits that tell where each begins."""
    return PAGE_WORDS * 8 + cython.cast(cython.Py_ssize_t, (steps * width + 7) >> 3)


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
    fit_subjects(entries, cython.address(page), first, last)
    size = packed_bytes(cython.address(page))
    made = cython.cast(cython.pointer(PackedPage), malloc(size))
    if made == cython.NULL:
        return cython.NULL
    memcpy(made, cython.address(page), cython.sizeof(PackedPage))
    memset(made + 1, 0, size - cython.sizeof(PackedPage))
    for column in range(COLUMNS):
        if page.width[column]:
            write_column(entries, made, column, first, last)
    write_subjects(entries, made, first, last)
    if page.coarse & STEPS:
        write_steps(entries, made, first, last)
    return made


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def packed_bytes(page: cython.pointer(cython.const[PackedPage])) -> cython.Py_ssize_t:
    """Memory that a page takes."""
    total: cython.Py_ssize_t = (
        cython.sizeof(PackedPage)
        + place_of(page, COLUMNS)
        + (page.planes + page.hint) * (PAGE_ENTRIES // 8)
        + PADDING
    )
    if page.coarse & STEPS:
        total += steps_bytes(page.slope[TIMES] >> 8, page.slope[TIMES] & 0xFF)
    return total


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def planes_of(
    page: cython.pointer(cython.const[PackedPage]),
) -> cython.pointer(cython.ulonglong):
    """Where the planes of subjects begin; a whole number of words behind the page's struct."""
    at: cython.p_uchar = cython.cast(cython.p_uchar, page + 1) + place_of(page, COLUMNS)
    return cython.cast(cython.pointer(cython.ulonglong), at)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def steps_of(
    page: cython.pointer(cython.const[PackedPage]),
) -> cython.pointer(cython.ulonglong):
    """Where the bits begin that tell where a time does; the times follow. The page has steps."""
    return planes_of(page) + (page.planes + page.hint) * PAGE_WORDS


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def step_at(
    page: cython.pointer(cython.const[PackedPage]), i: cython.int
) -> cython.ulonglong:
    """The time of an entry, of a page with steps."""
    begins: cython.pointer(cython.ulonglong) = steps_of(page)
    width: cython.int = page.slope[TIMES] & 0xFF
    step: cython.int = bits_set(begins[i >> 6] & (EVERY >> (63 - (i & 63))))
    raw: cython.ulonglong
    word: cython.int
    if width == 0:
        return page.base[TIMES]
    for word in range(i >> 6):
        step += bits_set(begins[word])
    memcpy(
        cython.address(raw),
        cython.cast(cython.p_const_uchar, begins + PAGE_WORDS) + ((step * width) >> 3),
        8,
    )
    if width == 64:
        return page.base[TIMES] + raw
    raw >>= (step * width) & 7
    return page.base[TIMES] + (raw & ((cython.cast(cython.ulonglong, 1) << width) - 1))


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


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def hint_next(
    page: cython.pointer(PackedPage), i: cython.int, pages: cython.ulonglong
) -> cython.int:
    """The next message of an entry's subject is at least so many pages on."""
    bits: cython.int = page.hint
    digits: cython.int = bits >> 1
    power: cython.int
    code: cython.ulonglong = pages
    raw: cython.ushort
    at: cython.p_uchar
    bit: cython.int = i * bits
    if bits == 0:
        return 0
    if pages >> digits:
        power = 63 - leading_zeros(pages) - digits
        code = (cython.cast(cython.ulonglong, power + 1) << digits) | (
            (pages >> power) & ((1 << digits) - 1)
        )
        code = min(code, (cython.cast(cython.ulonglong, 1) << bits) - 1)
    at = cython.cast(cython.p_uchar, planes_of(page) + page.planes * PAGE_WORDS) + (bit >> 3)
    memcpy(cython.address(raw), at, 2)
    raw &= ~cython.cast(cython.ushort, ((1 << bits) - 1) << (bit & 7))
    raw |= cython.cast(cython.ushort, code << (bit & 7))
    memcpy(at, cython.address(raw), 2)
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def hinted(
    page: cython.pointer(cython.const[PackedPage]), i: cython.int
) -> cython.ulonglong:
    """What `hint_next` was told, or somewhat less."""
    bits: cython.int = page.hint
    digits: cython.int = bits >> 1
    code: cython.uint
    raw: cython.ushort
    bit: cython.int = i * bits
    if bits == 0:
        return 0
    memcpy(
        cython.address(raw),
        cython.cast(cython.p_uchar, planes_of(page) + page.planes * PAGE_WORDS) + (bit >> 3),
        2,
    )
    code = (cython.cast(cython.uint, raw) >> (bit & 7)) & ((1 << bits) - 1)
    if code >> digits == 0:
        return code
    return cython.cast(cython.ulonglong, (1 << digits) | (code & ((1 << digits) - 1))) << (
        (code >> digits) - 1
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def unpack_entry(
    page: cython.pointer(cython.const[PackedPage]), i: cython.int, out: cython.pointer(IndexEntry)
) -> cython.int:
    """Entry `i` of a page; all zero when it is not alive."""
    pages: cython.ulonglong
    if not (page.alive[i >> 6] >> (i & 63)) & 1:
        memset(out, 0, cython.sizeof(IndexEntry))
        return 0
    out.location = stored(page, 0, i)
    if page.coarse & EIGHTS:
        out.location <<= 3
    out.timestamp = cython.cast(cython.longlong, stored(page, 1, i))
    if page.coarse & MICROSECONDS:
        out.timestamp *= 1000
    out.size = cython.cast(cython.uint, stored(page, 2, i))
    out.header_len = cython.cast(cython.uint, stored(page, 3, i))
    out.flags = cython.cast(cython.uint, stored(page, 4, i))
    out.subject = subject_at(page, i)
    pages = hinted(page, i)
    out.next = 0
    if pages:
        out.next = cython.cast(cython.uint, min((pages << PAGE_SHIFT) - i, FARTHEST))
    out.prev = 0
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
def subject_at(page: cython.pointer(cython.const[PackedPage]), i: cython.int) -> cython.uint:
    """The subject of an entry that is alive."""
    return page.subject + number_at(planes_of(page), page.planes, i)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def unpack_subjects(
    page: cython.pointer(cython.const[PackedPage]), out: cython.p_uint
) -> cython.int:
    """The subjects of all `PAGE_ENTRIES` entries; 0 for one that is not alive."""
    i: cython.int
    word: cython.int
    all_numbers(planes_of(page), page.planes, page.subject, out)
    for word in range(PAGE_WORDS):
        if page.alive[word] != EVERY:
            for i in range(64):
                if not (page.alive[word] >> i) & 1:
                    out[64 * word + i] = 0
    return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def fits(page: cython.pointer(cython.const[PackedPage]), subject: cython.uint) -> cython.bint:
    """Whether a page could hold a message of a subject."""
    return (
        subject >= page.subject
        and cython.cast(cython.ulonglong, subject - page.subject) >> page.planes == 0
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def find_subject(
    page: cython.pointer(cython.const[PackedPage]), subject: cython.uint, i: cython.int
) -> cython.int:
    """First entry at or after `i` of a subject; PAGE_ENTRIES when there is none."""
    planes: cython.pointer(cython.ulonglong) = planes_of(page)
    word: cython.int
    found: cython.ulonglong
    if i >= PAGE_ENTRIES or not fits(page, subject):
        return PAGE_ENTRIES
    for word in range(i >> 6, PAGE_WORDS):
        found = page.alive[word] & equal_bits(planes, page.planes, word, subject - page.subject)
        if word == i >> 6:
            found &= EVERY << (i & 63)
        if found:
            return 64 * word + lowest_bit(found)
    return PAGE_ENTRIES


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def find_subject_back(
    page: cython.pointer(cython.const[PackedPage]), subject: cython.uint, i: cython.int
) -> cython.int:
    """Last entry at or before `i` of a subject; -1 when there is none."""
    planes: cython.pointer(cython.ulonglong) = planes_of(page)
    word: cython.int = i >> 6
    found: cython.ulonglong
    if not fits(page, subject):
        return -1
    while word >= 0:
        found = page.alive[word] & equal_bits(planes, page.planes, word, subject - page.subject)
        if word == i >> 6:
            found &= EVERY >> (63 - (i & 63))
        if found:
            return 64 * word + 63 - leading_zeros(found)
        word -= 1
    return -1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def next_bit(page: cython.pointer(cython.const[PackedPage]), i: cython.int) -> cython.int:
    """First entry at or after `i` that is alive; PAGE_ENTRIES when there is none."""
    word: cython.ulonglong
    while i < PAGE_ENTRIES:
        word = page.alive[i >> 6] >> (i & 63)
        if word:
            return i + lowest_bit(word)
        i = (i | 63) + 1
    return PAGE_ENTRIES


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def bits_between(
    page: cython.pointer(cython.const[PackedPage]), first: cython.int, last: cython.int
) -> cython.int:
    """How many entries from `first` to `last` are alive, both included."""
    total: cython.int = 0
    word: cython.int
    some: cython.ulonglong
    for word in range(first >> 6, (last >> 6) + 1):
        some = page.alive[word]
        if word == first >> 6:
            some &= EVERY << (first & 63)
        if word == last >> 6:
            some &= EVERY >> (63 - (last & 63))
        total += bits_set(some)
    return total
