"""A page of the index in few bytes: 256 entries as columns of numbers with few bits each.

What messages of a stream have in common costs nothing: the distance to what a line through the
page's first and last value predicts (location, time), or to the column's least value (all others),
is kept in as many bits as the largest of them needs. Every entry is read without its neighbours.
An entry that is taken out only loses its bit in `alive`.

Messages lie one behind the other. Where that takes less, a page has spans instead of locations, and
what is not said by them of sizes and packed lengths (`page_spans`). Then a location is a short sum.

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
)
from cython.cimports.headwater.edge.storage.index.page_spans import (
    RATIO_BITS,
    SIZE_ZERO,
    SPAN_MARKS,
    SPAN_STRIDE,
)
from cython.cimports.libc.string import memcpy, memset

# Reading in pieces of eight bytes goes so far beyond the last column.
PADDING = cython.declare(cython.Py_ssize_t, 8)
# Of the slope of spans, the least one.
SPAN_LEAST = cython.declare(cython.ulonglong, 0xFFFF_FFFF)
EVERY = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
# The greatest distance that an entry says.
FARTHEST = cython.declare(cython.ulonglong, 0xFFFF_FFFF)


@cython.cfunc
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
def steps_bytes(steps: cython.ulonglong, width: cython.uint) -> cython.Py_ssize_t:
    """What so many times of `width` bits take, with the bits that tell where each begins."""
    return PAGE_WORDS * 8 + cython.cast(cython.Py_ssize_t, (steps * width + 7) >> 3)


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
    if page.coarse & SPANS:
        total += 8 * mark_words(page)
    if page.coarse & STEPS:
        total += steps_bytes(page.slope[TIMES] >> 8, page.slope[TIMES] & 0xFF)
    return total


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def planes_of(
    page: cython.pointer(cython.const[PackedPage]),
) -> cython.pointer(cython.ulonglong):
    """Where the planes of subjects begin; a whole number of words behind the page's struct."""
    at: cython.p_uchar = cython.cast(cython.p_uchar, page + 1) + place_of(page, COLUMNS)
    return cython.cast(cython.pointer(cython.ulonglong), at)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def marks_of(
    page: cython.pointer(cython.const[PackedPage]),
) -> cython.pointer(cython.ulonglong):
    """Where the jump and the marks of spans begin, if the page has them."""
    return planes_of(page) + (page.planes + page.hint) * PAGE_WORDS


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def steps_of(
    page: cython.pointer(cython.const[PackedPage]),
) -> cython.pointer(cython.ulonglong):
    """Where the bits begin that tell where a time does; the times follow. The page has steps."""
    if page.coarse & SPANS:
        return marks_of(page) + mark_words(page)
    return marks_of(page)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def bits_at(
    column: cython.p_const_uchar, width: cython.int, i: cython.int
) -> cython.ulonglong:
    """Value `i` of values with `width` bits, 1 to `WIDTH_MAX`."""
    raw: cython.ulonglong
    memcpy(cython.address(raw), column + ((i * width) >> 3), 8)
    return (raw >> ((i * width) & 7)) & ((cython.cast(cython.ulonglong, 1) << width) - 1)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def mark_words(page: cython.pointer(cython.const[PackedPage])) -> cython.Py_ssize_t:
    """What the jump and the marks of a page with spans take."""
    words: cython.Py_ssize_t = 1 if page.coarse & JUMP else 0
    if page.width[LOCATIONS]:
        words += (SPAN_MARKS * (page.width[LOCATIONS] + MARK_BITS) + 63) >> 6
    return words


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def unpack_span(
    page: cython.pointer(cython.const[PackedPage]), i: cython.int, out: cython.pointer(IndexEntry)
) -> cython.int:
    """Location, size and flags of an entry that is alive, of a page with spans."""
    spans: cython.p_const_uchar = cython.cast(cython.p_const_uchar, page + 1)
    shift: cython.int = 3 if page.coarse & EIGHTS else 0
    width: cython.int = page.width[LOCATIONS]
    span: cython.ulonglong = page.slope[LOCATIONS] & SPAN_LEAST
    place: cython.ulonglong = page.base[LOCATIONS] + span * i
    beyond: cython.ulonglong = stored(page, FLAGS, i)
    words: cython.pointer(cython.ulonglong) = marks_of(page)
    k: cython.int
    if page.coarse & JUMP:
        if cython.cast(cython.ulonglong, i) > words[0] & 0xFF:
            place += words[0] >> 8
        words += 1
    if width:
        if i >= SPAN_STRIDE:
            place += bits_at(
                cython.cast(cython.p_const_uchar, words),
                width + MARK_BITS,
                i // SPAN_STRIDE - 1,
            )
        for k in range(i & ~(SPAN_STRIDE - 1), i):
            place += bits_at(spans, width, k)
        span += bits_at(spans, width, i)
    span = (span << shift) - stored(page, SIZES, i)
    out.location = place << shift
    if page.coarse & MIXED and beyond == page.least[FLAGS - SLOPED]:
        out.size = cython.cast(cython.uint, span)
        out.flags = 0
    else:
        out.flags = cython.cast(cython.uint, span) << 1
        beyond += (span * (page.slope[LOCATIONS] >> SPAN_BITS)) >> RATIO_BITS
        out.size = cython.cast(cython.uint, beyond - SIZE_ZERO)
    return 0


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
    if page.coarse & SPANS:
        unpack_span(page, i, out)
    else:
        out.location = stored(page, LOCATIONS, i)
        if page.coarse & EIGHTS:
            out.location <<= 3
        out.size = cython.cast(cython.uint, stored(page, SIZES, i))
        out.flags = cython.cast(cython.uint, stored(page, FLAGS, i))
    out.timestamp = cython.cast(cython.longlong, stored(page, 1, i))
    if page.coarse & MICROSECONDS:
        out.timestamp *= 1000
    out.header_len = cython.cast(cython.uint, stored(page, 3, i))
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
