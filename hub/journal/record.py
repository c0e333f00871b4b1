"""Records of the journal. The header has its own checksum, so that its length can be trusted.

    4s "HWRJ"  u8 kind  3x  u32 length  u32 segment  u32 offset  u64 group  u64 a  u64 b
    u32 crc of the body   u32 crc of the header before

`segment` and `offset` say where the record belongs, so what an earlier use left never verifies.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from headwater.edge.storage.format.crc import checksum

HEADER = struct.Struct("<4sB3xIIIQQQI")
CRC = struct.Struct("<I")
MAGIC = b"HWRJ"
HEADER_BYTES = HEADER.size + CRC.size
ALIGN = 8


class RecordKind(IntEnum):
    """What a record says."""

    SEGMENT = 1
    """First of a file; a, b: number of the file before, and where it ended."""
    ENTRIES = 2
    """A run of entries of a group. It takes the place of all from its first index on; a, b: its
    last index, and the term of the entry before the run, which must be there."""
    BASE = 3
    """The log of a group begins anew behind a snapshot; a, b: its index and term."""
    FOOTER = 4
    """Everything before it was synced together; a: offset where the batch began."""


class Record(NamedTuple):
    """One record that verified. `body` is None when it is damaged."""

    kind: int
    group: int
    a: int
    b: int
    offset: int
    end: int
    body: bytes | None


def encode_record(
    kind: RecordKind, segment: int, offset: int, group: int, a: int, b: int, body: bytes
) -> bytes:
    """A record for one offset, padded so that the next one is aligned."""
    head = HEADER.pack(MAGIC, kind, len(body), segment, offset, group, a, b, int(checksum(body)))
    whole = head + CRC.pack(int(checksum(head))) + body
    return whole + bytes(-len(whole) % ALIGN)


def decode_record(data: bytes, offset: int, segment: int) -> Record | None:
    """The record at an offset; None when no whole one with a good header is there."""
    head = data[offset : offset + HEADER.size]
    if head[:4] != MAGIC or len(data) < offset + HEADER_BYTES:
        return None
    (crc,) = CRC.unpack_from(data, offset + HEADER.size)
    if crc != int(checksum(head)):
        return None
    _, kind, length, number, at, group, a, b, body_crc = HEADER.unpack(head)
    start = offset + HEADER_BYTES
    if number != segment or at != offset or start + length > len(data):
        return None
    body: bytes | None = data[start : start + length]
    if body is None or int(checksum(body)) != body_crc:
        body = None
    end = start + length
    return Record(kind, group, a, b, offset, end + -end % ALIGN, body)
