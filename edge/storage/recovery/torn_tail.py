"""Tells a batch of the log that a power cut tore from one that was damaged later.

Both have a footer and lack some of what it lists. A batch that a later footer calls durable was
acknowledged, so it is damaged. The last ones may never have been: they are torn when a part of them
still shows what the slot held before, nothing (zeros) or records of another segment. Anything else,
such as a few wrong bytes, is damage, so that no acknowledged message goes without a word. But when
the system went down, whatever is wrong with the last batches of `interval` streams is torn: they
were acknowledged before their sync, so that their loss is told otherwise (see `reservations`).
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.headwater.edge.storage.format.crc import crc32c, table
from cython.cimports.headwater.edge.storage.format.record import (
    FILE_HEADER_BYTES,
    FLAG_COPY,
    FLAG_ERASED,
    FLAG_LAZY,
    HEADER_BYTES,
    KIND_BUNDLE,
    KIND_FOOTER,
    KIND_HEAD,
    MAGIC,
    VERSION,
    RecordHeader,
    body_ok,
    find_record,
    header_ok,
    record_size,
)
from cython.cimports.headwater.edge.storage.log.log_segment import LogSegment
from cython.cimports.libc.string import memcpy, memset

from headwater.edge.storage.segments.segment_files import FOOTER as SEGMENT_FOOTER

SECTOR_BYTES = cython.declare(cython.Py_ssize_t, 512)
PAGE_BYTES = cython.declare(cython.Py_ssize_t, 4096)
# So many zeros cannot be the beginning of a record.
ZEROS_MIN = cython.declare(cython.Py_ssize_t, 16)
# Wrong bytes, of those that are known of a header, that are no accident.
OTHER_BYTES_MIN = cython.declare(cython.int, 3)
# A part of a sector with fewer zeros than this may be a message's own.
ZERO_PART_MIN = cython.declare(cython.Py_ssize_t, 64)


@cython.cfunc
@cython.exceptval(check=False)
def all_zero(data: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
    i: cython.Py_ssize_t = 0
    while i < n and data[i] == 0:
        i += 1
    return i == n


@cython.cfunc
@cython.exceptval(check=False)
def zero_sector(
    image: cython.p_const_uchar, start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.bint:
    """Whether what lies between holds a sector, or a good part of one, of zeros."""
    stop: cython.Py_ssize_t
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if stop - start >= ZERO_PART_MIN and all_zero(image + start, stop - start):
            return True
        start = stop
    return False


@cython.cfunc
@cython.exceptval(check=False)
def zero_end(
    image: cython.p_const_uchar, start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.bint:
    """Whether a sector ends in zeros, as the last one of an earlier batch does."""
    stop: cython.Py_ssize_t = (start // SECTOR_BYTES + 1) * SECTOR_BYTES
    while stop <= end:
        if stop - start >= ZERO_PART_MIN and all_zero(image + stop - ZERO_PART_MIN, ZERO_PART_MIN):
            return True
        start = stop
        stop += SECTOR_BYTES
    return False


@cython.cfunc
@cython.exceptval(check=False)
def old_record(
    image: cython.p_const_uchar,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    seed: cython.uint,
    segment: cython.uint,
) -> cython.bint:
    """Whether a record of another segment lies there, from an earlier use of the slot."""
    header: cython.pointer(RecordHeader)
    at: cython.Py_ssize_t = (start + 7) & ~7
    while at + HEADER_BYTES <= end:
        header = cython.cast(cython.pointer(RecordHeader), image + at)
        if header.segment != segment and header_ok(
            image + at, 1 << 40, seed, header.segment, cython.cast(cython.uint, at)
        ):
            return True
        at += 8
    return False


@cython.cfunc
@cython.exceptval(check=False)
def one_byte_wrong(record: cython.p_const_uchar) -> cython.bint:
    """Whether the body's checksum would be right with one other byte in it: a checksum is linear,
    so what is wrong with it tells the offset and the value of a single wrong byte."""
    header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
    wrong: cython.uint = crc32c(0, record + HEADER_BYTES, header.length) ^ header.body_crc
    left: cython.Py_ssize_t = header.length
    number: cython.uint
    of_top: cython.uchar[256]
    for number in range(256):
        of_top[table[0][number] >> 24] = cython.cast(cython.uchar, number)
    while left and wrong:
        number = of_top[wrong >> 24]
        if table[0][number] == wrong:
            return True
        wrong = ((wrong ^ table[0][number]) << 8) | number
        left -= 1
    return wrong == 0


@cython.cfunc
@cython.exceptval(check=False)
def other_content(
    segment: LogSegment, start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.bint:
    """Whether much of what is known of the header that should begin at `start` is different, as far
    as the sector goes."""
    want: RecordHeader
    wanted: cython.p_const_uchar = cython.cast(cython.p_const_uchar, cython.address(want))
    room: cython.Py_ssize_t = min(HEADER_BYTES, SECTOR_BYTES - start % SECTOR_BYTES)
    known: cython.int = 0
    differing: cython.int = 0
    i: cython.Py_ssize_t
    if end - start < HEADER_BYTES:
        return False
    want.magic = MAGIC
    want.version = VERSION
    want.segment = segment.number
    want.offset = cython.cast(cython.uint, start)
    for i in range(room):
        if i < 5 or 48 <= i < 56:
            known += 1
            differing += wanted[i] != segment.image[start + i]
    return differing >= OTHER_BYTES_MIN and differing * 5 >= known * 2


@cython.cfunc
@cython.exceptval(check=False)
def is_old(
    segment: LogSegment, seed: cython.uint, start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.bint:
    """Whether bytes where records should begin are what the slot held before."""
    return (
        (end - start >= ZEROS_MIN and all_zero(segment.image + start, ZEROS_MIN))
        or zero_sector(segment.image, start, end)
        or zero_end(segment.image, start, end)
        or old_record(segment.image, start, end, seed, segment.number)
        or other_content(segment, start, end)
    )


@cython.cfunc
@cython.exceptval(check=False)
def length_at(segment: LogSegment, at: cython.Py_ssize_t) -> cython.uint:
    """Of the body of the record there."""
    return cython.cast(cython.pointer(RecordHeader), segment.image + at).length


@cython.cfunc
@cython.exceptval(check=False)
def is_old_footer(
    segment: LogSegment, seed: cython.uint, first: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.bint:
    """The same of bytes up to `end` behind a batch's `first` footer: its second one should stand
    there, and then zeros, up to the end of the page at most."""
    length: cython.Py_ssize_t = HEADER_BYTES + length_at(segment, first)
    start: cython.Py_ssize_t = first + record_size(length_at(segment, first))
    page: cython.Py_ssize_t = (start + length + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1)
    return is_old(segment, seed, start, min(end, start + length)) or (
        end > page and is_old(segment, seed, page, end)
    )


@cython.cfunc
@cython.exceptval(check=False)
def is_old_body(segment: LogSegment, seed: cython.uint, at: cython.Py_ssize_t) -> cython.bint:
    """Whether a part of a record's body, which does not verify, is what the slot held before."""
    header: cython.pointer(RecordHeader) = cython.cast(
        cython.pointer(RecordHeader), segment.image + at
    )
    start: cython.Py_ssize_t = at + HEADER_BYTES
    end: cython.Py_ssize_t = at + record_size(header.length)
    return (
        zero_sector(segment.image, start, end)
        or old_record(segment.image, start, end, seed, segment.number)
        or (header.kind == KIND_BUNDLE and zero_end(segment.image, start, end))
    ) and not one_byte_wrong(segment.image + at)


@cython.cfunc
@cython.exceptval(check=False)
def newest_durable(
    segment: LogSegment, seed: cython.uint, end: cython.Py_ssize_t
) -> cython.ulonglong:
    """The newest batch that a footer calls durable."""
    at: cython.Py_ssize_t = find_record(segment.image, FILE_HEADER_BYTES, end, seed, segment.number)
    header: cython.pointer(RecordHeader)
    newest: cython.ulonglong = 0
    while at < end:
        header = cython.cast(cython.pointer(RecordHeader), segment.image + at)
        if header.kind == KIND_FOOTER and header.stream > newest:
            newest = header.stream
        at = find_record(segment.image, at + record_size(header.length), end, seed, segment.number)
    return newest


@cython.cfunc
@cython.exceptval(check=False)
def mend_footer(first: cython.p_uchar, second: cython.p_uchar) -> cython.bint:
    """Make a batch's second footer, of which the body does not verify, from its first one; whether
    it verifies then."""
    known: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), first)
    header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), second)
    if known.sequence != header.sequence or known.length > header.length:
        return False
    memcpy(second + HEADER_BYTES, first + HEADER_BYTES, known.length)
    memset(second + HEADER_BYTES + known.length, 0, header.length - known.length)
    return body_ok(second)


def torn_at(
    segment: LogSegment,
    seed: cython.uint,
    end: cython.Py_ssize_t,
    same_boot: cython.bint,
    known: cython.ulonglong,
) -> int:
    """Where the first torn batch of the newest log segment begins; 0 when none is. `end`: of the
    last footer that verifies. `same_boot`: the system has run ever since. `known`: the newest batch
    that was acknowledged, as far as watermarks tell. A second footer that alone was torn is made
    again in the segment's image."""
    durable: cython.ulonglong = max(known, newest_durable(segment, seed, end))
    at: cython.Py_ssize_t = FILE_HEADER_BYTES
    begin: cython.Py_ssize_t = at
    following: cython.Py_ssize_t
    header: cython.pointer(RecordHeader)
    old: cython.bint = False
    wrong: cython.bint = False
    lazy_begin: cython.Py_ssize_t = 0
    footer: cython.Py_ssize_t = 0
    while at < end:
        following = find_record(segment.image, at, end, seed, segment.number)
        if following > at:
            wrong = True
            if footer and at == footer + record_size(length_at(segment, footer)):
                old = old or is_old_footer(segment, seed, footer, following)
            else:
                old = old or is_old(segment, seed, at, following)
            at = following
            continue
        header = cython.cast(cython.pointer(RecordHeader), segment.image + at)
        if not body_ok(segment.image + at):
            if (
                header.kind == KIND_FOOTER
                and not same_boot
                and footer
                and not wrong
                and header.sequence > durable
                and mend_footer(segment.image + footer, segment.image + at)
            ):
                continue
            wrong = True
            if header.kind != KIND_FOOTER or not header.flags & FLAG_COPY:
                old = old or is_old_body(segment, seed, at)
        elif header.kind == KIND_FOOTER:
            footer = 0 if header.flags & FLAG_COPY else at
            if not header.flags & FLAG_LAZY or same_boot:
                lazy_begin = 0
            elif wrong and header.sequence > durable and not lazy_begin:
                lazy_begin = begin
            if old and header.sequence > durable:
                return lazy_begin or begin
            old = wrong = False
            begin = at + record_size(header.length)
        at += record_size(header.length)
    return lazy_begin


def was_synced(segment: LogSegment, seed: cython.uint) -> bool:
    """Whether records of a slot without a header tell that a batch of it was durable. Otherwise a
    power cut lost the header with the rest of the very first batches."""
    header: cython.pointer(RecordHeader)
    at: cython.Py_ssize_t = FILE_HEADER_BYTES
    first: cython.ulonglong = 0
    durable: cython.ulonglong = 0
    number: cython.uint = 0
    while at + HEADER_BYTES <= segment.capacity:
        header = cython.cast(cython.pointer(RecordHeader), segment.image + at)
        if header_ok(
            segment.image + at,
            segment.capacity - at,
            seed,
            header.segment,
            cython.cast(cython.uint, at),
        ):
            if header.segment > number:
                number = header.segment
                first = durable = 0
            if header.segment == number and header.kind == KIND_FOOTER:
                first = first or header.sequence
                durable = max(durable, header.stream)
        at += 8
    return first != 0 and durable >= first


def newest_number(segment: LogSegment, seed: cython.uint) -> int:
    """Number of the log segment of which records stand in a slot whose header is bad; 0 without.
    Records of earlier segments in it have smaller numbers."""
    header: cython.pointer(RecordHeader)
    at: cython.Py_ssize_t = FILE_HEADER_BYTES
    number: cython.uint = 0
    while at + HEADER_BYTES <= segment.capacity:
        header = cython.cast(cython.pointer(RecordHeader), segment.image + at)
        if header.segment > number and header_ok(
            segment.image + at,
            segment.capacity - at,
            seed,
            header.segment,
            cython.cast(cython.uint, at),
        ):
            number = header.segment
        at += 8
    return number


def whole_until(
    content: bytes, start: cython.Py_ssize_t, seed: cython.uint, number: cython.uint
) -> int:
    """Up to where the batches of a stream's segment are whole, from `start` on."""
    data: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(content))
    size: cython.Py_ssize_t = len(content)
    at: cython.Py_ssize_t = start
    end: cython.Py_ssize_t = start
    header: cython.pointer(RecordHeader)
    records: cython.uint = 0
    chain: cython.uint = 0
    while at < size:
        if not header_ok(data + at, size - at, seed, number, cython.cast(cython.uint, at)):
            break
        header = cython.cast(cython.pointer(RecordHeader), data + at)
        if not body_ok(data + at) or (chain and header.chain != chain):
            break
        chain = 0 if header.flags & FLAG_ERASED else header.header_crc
        at += record_size(header.length)
        if header.kind != KIND_HEAD:
            records += 1
            continue
        if not header.flags & FLAG_COPY:
            body = content[at - record_size(header.length) + HEADER_BYTES : at]
            if SEGMENT_FOOTER.unpack_from(body)[4] != records:
                break
            records = 0
        end = at
    return end


def unconfirmed(
    segment: LogSegment, seed: cython.uint, end: cython.Py_ssize_t, torn: cython.bint
) -> int:
    """Where the batches begin that no footer calls durable, up to `end`. `torn`: a power cut may
    have kept sectors of them only, and what they say twice is made whole."""
    durable: cython.ulonglong = newest_durable(segment, seed, end)
    header: cython.pointer(RecordHeader)
    begin: cython.Py_ssize_t = FILE_HEADER_BYTES
    at: cython.Py_ssize_t = find_record(segment.image, FILE_HEADER_BYTES, end, seed, segment.number)
    while at < end:
        header = cython.cast(cython.pointer(RecordHeader), segment.image + at)
        at += record_size(header.length)
        if header.kind == KIND_FOOTER and header.sequence <= durable:
            begin = at
        at = find_record(segment.image, at, end, seed, segment.number)
    if torn:
        mend_copies(segment, seed, begin, end)
    return begin


@cython.cfunc
@cython.exceptval(-1, check=False)
def mend_copies(
    segment: LogSegment, seed: cython.uint, begin: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.int:
    """Complete the second footers of the batches between `begin` and `end` that a power cut tore:
    each says what the first one, which is there, says. Anything else stays as it is."""
    header: cython.pointer(RecordHeader)
    first: cython.pointer(RecordHeader) = cython.NULL
    at: cython.Py_ssize_t = find_record(segment.image, begin, end, seed, segment.number)
    while at < end:
        header = cython.cast(cython.pointer(RecordHeader), segment.image + at)
        if header.kind == KIND_FOOTER and body_ok(segment.image + at):
            first = header
        elif (
            header.kind == KIND_FOOTER
            and header.flags & FLAG_COPY
            and first != cython.NULL
            and first.sequence == header.sequence
            and first.length <= header.length
            and is_old_body(segment, seed, at)
        ):
            copy_body(header, first)
        at = find_record(segment.image, at + record_size(header.length), end, seed, segment.number)
    return 0


@cython.cfunc
@cython.exceptval(-1, check=False)
def copy_body(
    header: cython.pointer(RecordHeader), first: cython.pointer(RecordHeader)
) -> cython.int:
    """Give a footer the body of another one, and zeros behind, if that is what it had."""
    body: cython.p_uchar = cython.cast(cython.p_uchar, header) + HEADER_BYTES
    size: cython.Py_ssize_t = record_size(header.length) - HEADER_BYTES
    before: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, body), size)
    memcpy(body, cython.cast(cython.p_const_uchar, first) + HEADER_BYTES, first.length)
    memset(body + first.length, 0, size - first.length)
    if not body_ok(cython.cast(cython.p_const_uchar, header)):
        memcpy(body, PyBytes_AS_STRING(before), size)
    return 0
