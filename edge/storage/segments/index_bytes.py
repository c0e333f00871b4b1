"""Index files as they lie on disk: packed on a gateway, sealed as a whole when their stream is.

A packed index has the differences between neighbouring rows, in planes: every 32nd byte of them
from the first on, then from the second on, and so on. Most planes are then one byte over and over.
It takes an eighth of the space, which spares a flash device and is read sooner from it. The text
before the rows is left as it is, with subjects in order. Earlier versions packed the whole file in
planes, without differences; that is read as well.
"""

import struct
import zlib
from dataclasses import replace
from operator import itemgetter
from typing import Any

from headwater.edge.storage.format.crc import checksum
from headwater.edge.storage.segments.index_rows import differences, unpacked_rows
from headwater.edge.storage.segments.segment_files import (
    INDEX_ENTRY,
    IndexFile,
    decode_index,
    read_head,
)

PURPOSE = b"index"
MAGIC = b"HWID"
# Magic, bytes before zlib, of them before the rows, of the rows, nanoseconds per 1 of their times.
HEAD = struct.Struct("<4sIIII")
EARLIER_MAGIC = b"HWIZ"
EARLIER_HEAD = struct.Struct("<4sI")
PLANES = INDEX_ENTRY.size
LEVEL = 6
CRC_BYTES = 4


def index_bytes(store: Any, index: IndexFile) -> bytes:
    """Content of an index file of a store's segment. On the loop only: sealing counts nonces."""
    data = pack(index, store.seed) if store.packs_index else index.encode(store.seed)
    return bytes(store.packer.seal_blob(data, PURPOSE))


def read_index(store: Any, data: bytes) -> IndexFile | None:
    """What an index file says; None when it is not whole and right."""
    opened = store.packer.open_blob(data, PURPOSE)
    if opened is None:
        return None
    if opened[:4] == MAGIC:
        return unpack(opened, store.seed)
    if opened[:4] == EARLIER_MAGIC:
        opened = unpack_earlier(opened, store.seed)
    return None if opened is None else decode_index(opened, store.seed)


def pack(index: IndexFile, seed: int) -> bytes:
    """An index in less space than `IndexFile.encode` takes."""
    rows, unit = differences(index.entries)
    subjects = sorted(index.subjects, key=itemgetter(1))
    data = replace(index, subjects=subjects, entries=rows).encode(seed)
    end = len(data) - CRC_BYTES - len(index.packed)
    begin = end - len(rows)
    shown = data[:begin] + in_planes(rows) + data[end:]
    packed = HEAD.pack(MAGIC, len(data), begin, len(rows), unit) + _compressed(shown, begin)
    return packed + struct.pack("<I", checksum(packed, seed))


def _compressed(shown: bytes, begin: int) -> bytes:
    """By zlib, with codes of their own for the text and for the planes behind `begin`, as they
    have little in common."""
    made = zlib.compressobj(LEVEL, strategy=zlib.Z_FILTERED)
    text = made.compress(shown[:begin]) + made.flush(zlib.Z_FULL_FLUSH)
    return text + made.compress(shown[begin:]) + made.flush()


def unpack(packed: bytes, seed: int) -> IndexFile | None:
    """What `pack` was given, with subjects in another order; None when it is damaged."""
    shown = expanded(packed, HEAD, seed)
    if shown is None:
        return None
    _, _, begin, length, unit = HEAD.unpack_from(packed)
    # The checksum of the packed file covers all of this; the one within is not reckoned again.
    opened = read_head(shown)
    if opened is None:
        return None
    index, at, size, lengths = opened
    if (at, size, at + size + lengths + CRC_BYTES) != (begin, length, len(shown)):
        return None
    index.entries = unpacked_rows(shown, begin, length, unit)
    index.packed = memoryview(shown)[begin + length : -CRC_BYTES]
    return index


def unpack_earlier(packed: bytes, seed: int) -> bytes | None:
    """An index that an earlier version packed, as it was before; None when it is damaged."""
    shown = expanded(packed, EARLIER_HEAD, seed)
    return None if shown is None else from_planes(shown)


def expanded(packed: bytes, head: struct.Struct, seed: int) -> bytes | None:
    """What zlib was given of a packed index; None when it is damaged."""
    if len(packed) < head.size + CRC_BYTES:
        return None
    if struct.unpack("<I", packed[-CRC_BYTES:])[0] != checksum(packed, seed, CRC_BYTES):
        return None
    size = EARLIER_HEAD.unpack_from(packed)[1]
    try:
        shown = zlib.decompressobj().decompress(packed[head.size : -CRC_BYTES], size)
    except zlib.error:
        return None
    return shown if len(shown) == size else None


def in_planes(data: bytes | bytearray) -> bytes:
    """Every 32nd byte from the first on, then from the second on, and so on."""
    return b"".join(data[number::PLANES] for number in range(PLANES))


def from_planes(planes: bytes) -> bytes:
    """What `in_planes` was given."""
    size = len(planes)
    data = bytearray(size)
    at = 0
    for number in range(PLANES):
        length = len(range(number, size, PLANES))
        data[number::PLANES] = planes[at : at + length]
        at += length
    return bytes(data)
