"""The layout of a record for interpreted code that looks at few of them; record.py has the codec.

docs/STORAGE.md describes it.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from headwater.edge.storage.format.crc import checksum

HEADER = struct.Struct("<IBBHIIIIQqQIIII")
HEADER_BYTES = HEADER.size
MAGIC = 0x31525748
VERSION = 1
MESSAGE = 1
DELETE = 2
ERASE = 13
ERASE_DONE = 14
BUNDLE = 16
BUNDLED = struct.Struct("<HBBI")
"""Head of a message in a BUNDLE, without its checksum: lengths of what follows and of its subject,
flags, ns after the bundle's timestamp."""
BUNDLED_BYTES = BUNDLED.size + 4
BUNDLED_HEADERS = 1
BUNDLED_ERASED = 2
BUNDLED_STEM = 16
FLAG_SEALED = 4
FLAG_COMPRESSED = 8
FLAG_ERASED = 0x8000


class Header(NamedTuple):
    """The fields of a record's header, as in docs/STORAGE.md."""

    magic: int
    version: int
    kind: int
    flags: int
    length: int
    subject_len: int
    header_len: int
    body_crc: int
    sequence: int
    timestamp: int
    stream: int
    segment: int
    offset: int
    chain: int
    header_crc: int

    @property
    def size(self) -> int:
        """Bytes of the whole record."""
        return (HEADER_BYTES + self.length + 7) & ~7


def read_header(data: bytes, at: int, seed: int) -> Header | None:
    """The header at `at`, wherever in a file that is; None when it does not verify."""
    if at + HEADER_BYTES > len(data):
        return None
    header = Header(*HEADER.unpack_from(data, at))
    if header.magic != MAGIC or header.version != VERSION:
        return None
    crc = checksum(bytes(data[at : at + HEADER_BYTES - 4]), seed)
    return header if crc == header.header_crc else None


def body_of(data: bytes, at: int, header: Header) -> bytes | None:
    """The body of the record at `at`; None when it does not match its checksum."""
    body = bytes(data[at + HEADER_BYTES : at + HEADER_BYTES + header.length])
    whole = len(body) == header.length and checksum(body) == header.body_crc
    return body if whole else None


def erased_record(
    seed: int, stream: int, sequence: int, timestamp: int, segment: int, offset: int, size: int
) -> bytes:
    """What takes the place of a message of `size` bytes (the whole record) that was erased: a
    record that verifies, with nothing left of subject, headers, payload or their lengths."""
    body = bytes(size - HEADER_BYTES)
    head = HEADER.pack(
        MAGIC,
        VERSION,
        MESSAGE,
        FLAG_ERASED,
        len(body),
        0,
        0,
        checksum(body),
        sequence,
        timestamp,
        stream,
        segment,
        offset,
        0,
        0,
    )[:-4]
    return head + struct.pack("<I", checksum(head, seed)) + body


def bundled(data: bytes, at: int, header: Header) -> Iterator[tuple[int, bytes]]:
    """The messages of the bundle at `at`: sequence, and head and body as they lie there. They end
    where a length does not fit."""
    start, end = at + HEADER_BYTES + header.header_len, at + HEADER_BYTES + header.length
    for number in range(header.subject_len):
        if start + BUNDLED_BYTES > end:
            return
        stop = start + BUNDLED_BYTES + BUNDLED.unpack_from(data, start)[0]
        if stop > end:
            return
        yield header.sequence + number, data[start:stop]
        start = stop


def stem_of(data: bytes, at: int, header: Header) -> bytes:
    """What subjects of messages in the bundle at `at` begin and end with, where their heads say
    so: the length of the beginning in one byte, and both."""
    return data[at + HEADER_BYTES : at + HEADER_BYTES + header.header_len]


def has_stem(message: bytes) -> bool:
    """Whether the subject of a message in a bundle is as the stem says."""
    return bool(BUNDLED.unpack_from(message)[2] & BUNDLED_STEM)


def bundled_crc(sequence: int, segment: int, offset: int, message: bytes, stem: bytes) -> bytes:
    """The checksum of a message in a bundle: `message` has its head and body."""
    crc = checksum(struct.pack("<QII", sequence, segment, offset))
    crc = checksum(message[: BUNDLED.size], crc)
    if has_stem(message):
        crc = checksum(stem, crc)
    return struct.pack("<I", checksum(message[BUNDLED_BYTES:], crc))


def erased_bundled(sequence: int, segment: int, offset: int, message: bytes) -> bytes:
    """What takes the place of a message in a bundle that was erased; its head is at `offset`."""
    length, *_, later = BUNDLED.unpack_from(message)
    head = BUNDLED.pack(length, 0, BUNDLED_ERASED, later)
    body = bytes(len(message) - BUNDLED_BYTES)
    return head + bundled_crc(sequence, segment, offset, head + bytes(4) + body, b"") + body


def unbundled(
    seed: int, header: Header, offset: int, sequence: int, message: bytes, stem: bytes
) -> bytes:
    """The record, as if it had one of its own, of a message in a bundle that verifies."""
    _, subject_len, flags, later = BUNDLED.unpack_from(message)
    body = message[BUNDLED_BYTES:]
    header_len = 0
    if flags & BUNDLED_HEADERS:
        header_len, body = int.from_bytes(body[:2], "little"), body[2:]
    if flags & BUNDLED_STEM and stem:
        front, back = stem[1 : 1 + stem[0]], stem[1 + stem[0] :]
        middle = subject_len - len(front + back)
        body = front + body[:middle] + back + body[middle:]
    head = HEADER.pack(
        MAGIC,
        VERSION,
        MESSAGE,
        FLAG_ERASED if flags & BUNDLED_ERASED else flags & (FLAG_SEALED | FLAG_COMPRESSED),
        len(body),
        subject_len,
        header_len,
        checksum(body),
        sequence,
        header.timestamp + later,
        header.stream,
        header.segment,
        offset,
        0,
        0,
    )[:-4]
    return head + struct.pack("<I", checksum(head, seed)) + body
