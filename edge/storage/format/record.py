"""The record codec: a 64-byte header under its own checksum, and a body under another.

The header's checksum covers every length and field, so a damaged body costs one record and never
hides what follows. A record knows its file and offset, and carries the checksum of the record
before it; so lost, misplaced and stale writes show. All numbers are little endian.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.headwater.edge.storage.format.crc import crc32c
from cython.cimports.libc.string import memcpy

KIND_NAMES = {
    1: "MESSAGE",
    2: "DELETE",
    3: "HEAD",
    4: "SKIP",
    5: "LOST",
    6: "STATE_PUT",
    7: "STATE_DELTA",
    8: "STATE_DELETE",
    10: "STREAM_DELETE",
    11: "FOOTER",
    12: "CHECKPOINT",
    13: "ERASE",
    14: "ERASE_DONE",
    15: "ADOPT",
    16: "BUNDLE",
}
# For interpreted callers of CommitLog.write_record.
STATE_PUT = 6
STATE_DELETE = 8
STREAM_DELETE = 10


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def record_size(length: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Bytes of a whole record with a body of `length`: records begin at multiples of eight."""
    return (HEADER_BYTES + length + 7) & ~7


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def packed_bits(record: cython.p_const_uchar) -> cython.uint:
    """What an IndexEntry's flags say of a record whose body is sealed or compressed: its length,
    above the lowest bit. 0 of any other."""
    header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
    return header.length << 1 if header.flags & (FLAG_SEALED | FLAG_COMPRESSED) else 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def seal_header(header: cython.pointer(RecordHeader), seed: cython.uint) -> cython.void:
    """Set magic, version and the header's checksum; everything else is set already."""
    header.magic = MAGIC
    header.version = VERSION
    header.header_crc = crc32c(seed, cython.cast(cython.p_const_uchar, header), HEADER_BYTES - 4)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def header_ok(
    data: cython.p_const_uchar,
    room: cython.Py_ssize_t,
    seed: cython.uint,
    segment: cython.uint,
    offset: cython.uint,
) -> cython.bint:
    """Whether a whole record with a valid header for this place begins at `data`."""
    header: cython.pointer(RecordHeader)
    if room < HEADER_BYTES:
        return False
    header = cython.cast(cython.pointer(RecordHeader), data)
    if header.magic != MAGIC or header.segment != segment or header.offset != offset:
        return False
    if crc32c(seed, data, HEADER_BYTES - 4) != header.header_crc or header.version != VERSION:
        return False
    if record_size(header.length) > room:
        return False
    return (
        header.flags & (FLAG_SEALED | FLAG_COMPRESSED)
        or cython.cast(cython.ulonglong, header.subject_len) + header.header_len <= header.length
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def body_ok(record: cython.p_const_uchar) -> cython.bint:
    """Whether the body of a record, whose header is valid, matches its checksum, and what pads
    the record is zero. In a bundle, messages were erased when each of them matches its own."""
    header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
    at: cython.Py_ssize_t
    for at in range(HEADER_BYTES + header.length, record_size(header.length)):
        if record[at]:
            return False
    if crc32c(0, record + HEADER_BYTES, header.length) == header.body_crc:
        return True
    return header.kind == KIND_BUNDLE and bundle_ok(record)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def bundled_crc(
    record: cython.p_const_uchar, at: cython.Py_ssize_t, sequence: cython.ulonglong
) -> cython.uint:
    """Checksum of the message `at` bytes behind the begin of a bundle: of its sequence, the log
    segment, the offset of its head there, the head without its checksum, the stem if its subject
    begins with it, and what is behind the head."""
    header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
    place: cython.ulonglong[2]
    head: Bundled
    crc: cython.uint
    memcpy(cython.address(head), record + at, cython.sizeof(Bundled))
    place[0] = sequence
    place[1] = (cython.cast(cython.ulonglong, header.offset + at) << 32) | header.segment
    crc = crc32c(0, cython.cast(cython.p_const_uchar, cython.address(place)), 16)
    crc = crc32c(crc, record + at, cython.sizeof(Bundled) - 4)
    if head.flags & BUNDLED_STEM:
        crc = crc32c(crc, record + HEADER_BYTES, header.header_len)
    return crc32c(crc, record + at + cython.sizeof(Bundled), head.length)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def bundled_size(head: cython.p_const_uchar) -> cython.Py_ssize_t:
    """Bytes of a message in a bundle, with its head."""
    bundled: Bundled
    memcpy(cython.address(bundled), head, cython.sizeof(Bundled))
    return cython.sizeof(Bundled) + bundled.length


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def bundle_fits(record: cython.p_const_uchar) -> cython.bint:
    """Whether the lengths in a bundle's heads fill its body with as many messages as it says."""
    header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
    end: cython.Py_ssize_t = HEADER_BYTES + header.length
    at: cython.Py_ssize_t = HEADER_BYTES + header.header_len
    count: cython.uint = 0
    while at + cython.cast(cython.Py_ssize_t, cython.sizeof(Bundled)) <= end:
        at += bundled_size(record + at)
        count += 1
    return at == end and count == header.subject_len


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def bundled_ok(
    record: cython.p_const_uchar, at: cython.Py_ssize_t, sequence: cython.ulonglong
) -> cython.bint:
    """Whether the message `at` bytes behind the begin of a bundle, whose heads fit, verifies."""
    head: Bundled
    memcpy(cython.address(head), record + at, cython.sizeof(Bundled))
    return head.crc == bundled_crc(record, at, sequence)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def bundle_ok(record: cython.p_const_uchar) -> cython.bint:
    """Whether all messages of a bundle verify."""
    header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
    at: cython.Py_ssize_t = HEADER_BYTES + header.header_len
    number: cython.uint
    if not bundle_fits(record):
        return False
    for number in range(header.subject_len):
        if not bundled_ok(record, at, header.sequence + number):
            return False
        at += bundled_size(record + at)
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def find_record(
    data: cython.p_const_uchar,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    seed: cython.uint,
    segment: cython.uint,
) -> cython.Py_ssize_t:
    """Offset of the first valid header at or after `start`; `end` when there is none."""
    start = (start + 7) & ~7
    while start + HEADER_BYTES <= end:
        if header_ok(data + start, end - start, seed, segment, cython.cast(cython.uint, start)):
            return start
        start += 8
    return end


@cython.cfunc
def body_of(record: cython.p_const_uchar) -> bytes:
    """A copy of a record's body."""
    header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
    return PyBytes_FromStringAndSize(
        cython.cast(cython.p_char, record) + HEADER_BYTES, header.length
    )
