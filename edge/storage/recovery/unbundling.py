"""Takes messages out of the bundles in which a gateway's log holds them. docs/STORAGE.md has the
layout.
"""

import cython
from cython.cimports.headwater.edge.storage.format.crc import crc32c
from cython.cimports.headwater.edge.storage.format.record import (
    BUNDLED_ERASED,
    BUNDLED_HEADERS,
    BUNDLED_STEM,
    FLAG_COMPRESSED,
    FLAG_ERASED,
    FLAG_SEALED,
    HEADER_BYTES,
    KIND_MESSAGE,
    Bundled,
    RecordHeader,
    bundled_ok,
    bundled_size,
    record_size,
)
from cython.cimports.libc.string import memcpy, memset


@cython.cfunc
@cython.exceptval(check=False)
def room_of_bundle(header: cython.pointer(RecordHeader)) -> cython.Py_ssize_t:
    """Bytes that records of all messages of a bundle take at most."""
    return header.length + header.subject_len * (record_size(8) + header.header_len)


@cython.cfunc
@cython.exceptval(check=False)
def find_bundled(
    record: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    sequence: cython.ulonglong,
    found: cython.pointer(cython.ulonglong),
) -> cython.Py_ssize_t:
    """Where in a bundle the first message verifies at or behind `at`; it is `sequence` at the
    least. Sets `found` to which one it is: the one behind the bundle when there is none."""
    header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
    after: cython.ulonglong = header.sequence + header.subject_len
    end: cython.Py_ssize_t = HEADER_BYTES + header.length
    head: cython.Py_ssize_t = cython.sizeof(Bundled)
    while at + head <= end:
        if at + bundled_size(record + at) <= end:
            found[0] = sequence
            while found[0] < after:
                if bundled_ok(record, at, found[0]):
                    return at
                found[0] += 1
        at += 1
    found[0] = after
    return end


@cython.cfunc
@cython.exceptval(check=False)
def unbundle(
    made: cython.p_uchar,
    record: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    sequence: cython.ulonglong,
) -> cython.void:
    """Make the record of the message `at` bytes behind a bundle's begin, as the writer does: of the
    checksum's field, which says how much of the subject is the stem, too."""
    bundle: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
    header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), made)
    start: cython.Py_ssize_t = at + cython.sizeof(Bundled)
    left: cython.uint = 0
    front: cython.uint = 0
    header_len: cython.ushort = 0
    rest: cython.p_uchar = made + HEADER_BYTES
    head: Bundled
    memcpy(cython.address(head), record + at, cython.sizeof(Bundled))
    if head.flags & BUNDLED_HEADERS:
        memcpy(cython.address(header_len), record + start, 2)
        start += 2
        head.length -= 2
    if head.flags & BUNDLED_STEM and bundle.header_len:
        front = record[HEADER_BYTES]
        left = bundle.header_len - 1
    if front > left or left > head.subject_len:
        front = left = 0
    memset(made, 0, record_size(left + head.length))
    header.kind = KIND_MESSAGE
    header.flags = head.flags & (FLAG_SEALED | FLAG_COMPRESSED)
    if head.flags & BUNDLED_ERASED:
        header.flags = FLAG_ERASED
    header.length = left + head.length
    header.subject_len = head.subject_len
    header.header_len = header_len
    header.sequence = sequence
    header.timestamp = bundle.timestamp + head.later
    header.stream = bundle.stream
    header.segment = bundle.segment
    header.offset = cython.cast(cython.uint, bundle.offset + at)
    header.chain = bundle.offset
    header.header_crc = left
    if left:
        memcpy(rest, record + HEADER_BYTES + 1, front)
        memcpy(rest + front, record + start, head.subject_len - left)
        rest += head.subject_len
        memcpy(rest - (left - front), record + HEADER_BYTES + 1 + front, left - front)
        start += head.subject_len - left
        head.length -= cython.cast(cython.ushort, head.subject_len - left)
    memcpy(rest, record + start, head.length)
    header.body_crc = crc32c(0, made + HEADER_BYTES, header.length)
