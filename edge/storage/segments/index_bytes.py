"""Index files as they lie on disk: packed on a gateway, sealed as a whole when their stream is.

A packed index has its bytes in planes: every 32nd byte from the first on, then from the second on,
and so on, because the rows of an index differ little from one to the next. It takes a quarter of
the space, which spares a flash device and is read sooner from it.
"""

import struct
import zlib
from typing import Any

from headwater.edge.storage.format.crc import checksum
from headwater.edge.storage.segments.segment_files import INDEX_ENTRY, IndexFile, decode_index

PURPOSE = b"index"
PACKED_MAGIC = b"HWIZ"
PACKED_HEAD = struct.Struct("<4sI")
PLANES = INDEX_ENTRY.size
LEVEL = 1


def index_bytes(store: Any, index: IndexFile) -> bytes:
    """Content of an index file of a store's segment. On the loop only: sealing counts nonces."""
    data = index.encode(store.seed)
    if store.packs_index:
        data = pack(data, store.seed)
    return bytes(store.packer.seal_blob(data, PURPOSE))


def read_index(store: Any, data: bytes) -> IndexFile | None:
    """What an index file says; None when it is not whole and right."""
    opened = store.packer.open_blob(data, PURPOSE)
    if opened is not None and opened[:4] == PACKED_MAGIC:
        opened = unpack(opened, store.seed)
    return None if opened is None else decode_index(opened, store.seed)


def pack(data: bytes, seed: int) -> bytes:
    """An encoded index in less space."""
    planes = b"".join(data[number::PLANES] for number in range(PLANES))
    packed = PACKED_HEAD.pack(PACKED_MAGIC, len(data)) + zlib.compress(planes, LEVEL)
    return packed + struct.pack("<I", checksum(packed, seed))


def unpack(packed: bytes, seed: int) -> bytes | None:
    """What `pack` was given; None when it is damaged."""
    if len(packed) < PACKED_HEAD.size + 4:
        return None
    if struct.unpack("<I", packed[-4:])[0] != checksum(packed, seed, 4):
        return None
    size = PACKED_HEAD.unpack_from(packed)[1]
    try:
        planes = zlib.decompressobj().decompress(packed[PACKED_HEAD.size : -4], size)
    except zlib.error:
        return None
    if len(planes) != size:
        return None
    data = bytearray(size)
    at = 0
    for number in range(PLANES):
        length = len(range(number, size, PLANES))
        data[number::PLANES] = planes[at : at + length]
        at += length
    return bytes(data)
