"""The files of a stream's segments: header, name, footer and index layout, and who is open.

Layouts are described in docs/STORAGE.md. Reading and writing records is file_store's work.
"""

import re
import struct
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

from headwater.edge.ports import files
from headwater.edge.storage.format.crc import checksum, checksum_parts
from headwater.edge.storage.format.listed_subjects import listed_subjects

HEADER = struct.Struct("<4sIIIQq16s")
HEADER_MAGIC = b"HWSG"
FORMAT = 1
HEADER_COPIES = (0, 256)
DATA_START = 512
# Body of a segment's footer before its runs: last_seq, last_ts, log segment, offset of the
# batch's first record, records, nothing.
FOOTER = struct.Struct("<QqIIII")
INDEX_HEADER = struct.Struct("<4sIIIQqQQQqIIIII")
INDEX_MAGIC = b"HWIX"
INDEX_FORMAT = 1
# Of an index whose messages are sealed or compressed: with the lengths of their bodies.
INDEX_FORMAT_PACKED = 2
INDEX_ENTRY = struct.Struct("<QqIIII")
RUN = struct.Struct("<QQ")
Content = bytes | bytearray | memoryview
NAME = re.compile(r"(\d{6,})\.seg")


@dataclass
class SegmentHeader:
    """First bytes of a stream segment."""

    number: int
    generation: int
    """Grows when the segment is rewritten without its dead messages."""
    stream: int
    created: int

    def encode(self, seed: int, node_id: bytes) -> bytes:
        head = HEADER.pack(
            HEADER_MAGIC,
            FORMAT,
            self.number,
            self.generation,
            self.stream,
            self.created,
            node_id,
        )
        return (head + struct.pack("<I", checksum(head, seed))).ljust(256, b"\0") * 2


def decode_segment_header(data: bytes, seed: int) -> SegmentHeader | None:
    """The header of a segment; None when neither copy is valid."""
    for at in HEADER_COPIES:
        head = data[at : at + HEADER.size]
        tail = data[at + HEADER.size : at + HEADER.size + 4]
        if len(tail) == 4 and struct.unpack("<I", tail)[0] == checksum(head, seed):
            fields = HEADER.unpack(head)
            if fields[0] == HEADER_MAGIC and fields[1] == FORMAT:
                return SegmentHeader(*fields[2:6])
    return None


def segment_path(directory: Path, number: int) -> Path:
    return directory / f"{number:06d}.seg"


def next_number(directory: Path) -> int:
    """Number of the first segment of a stream that has none: above any file left over."""
    numbers = [int(path.stem) for path in directory.glob("*.seg") if path.stem.isdigit()]
    return max(numbers, default=0) + 1


def segment_number(path: Path) -> int | None:
    found = NAME.fullmatch(path.name)
    return int(found.group(1)) if found else None


@dataclass
class IndexFile:
    """What the index file of a segment says; `entries` and `subjects` stay encoded."""

    number: int
    generation: int
    stream: int
    created: int
    """Of the segment; the index counts only when it agrees."""
    data_end: int
    first_seq: int
    last_seq: int
    last_ts: int
    log_segment: int
    deletes: bytes = b""
    """Packed runs."""
    lost: list[tuple[int, int]] = field(default_factory=list)
    subjects: list[tuple[int, bytes]] = field(default_factory=list)
    entries: Content = b""
    packed: Content = b""
    """For each entry the length (u32) of its sealed or compressed body, 0 for a plain one; b"" when
    all are plain."""

    def encode(self, seed: int) -> bytes:
        head = INDEX_HEADER.pack(
            INDEX_MAGIC,
            INDEX_FORMAT_PACKED if self.packed else INDEX_FORMAT,
            self.number,
            self.generation,
            self.stream,
            self.created,
            self.data_end,
            self.first_seq,
            self.last_seq,
            self.last_ts,
            self.log_segment,
            len(self.subjects),
            len(self.entries) // INDEX_ENTRY.size,
            len(self.deletes) // RUN.size,
            len(self.lost),
        )
        small = [head, self.deletes]
        small += [RUN.pack(*run) for run in self.lost]
        small += [struct.pack("<II", number, len(text)) + text for number, text in self.subjects]
        parts = [b"".join(small), self.entries, self.packed]
        parts.append(struct.pack("<I", checksum_parts(parts, seed)))
        return b"".join(parts)


def decode_index(data: bytes, seed: int) -> IndexFile | None:
    """The content of an index file; None when it is not whole and right."""
    if len(data) < INDEX_HEADER.size + 4:
        return None
    if struct.unpack("<I", data[-4:])[0] != checksum(data, seed, 4):
        return None
    opened = read_head(data)
    if opened is None:
        return None
    index, at, size, lengths = opened
    index.entries = memoryview(data)[at : at + size]
    index.packed = memoryview(data)[at + size : -4]
    return index if at + size + lengths + 4 == len(data) else None


def read_head(data: bytes) -> tuple[IndexFile, int, int, int] | None:
    """What an index has before its rows, which are not in it yet; where they begin, how many bytes
    they have, and how many the lengths of packed bodies. None when it is no index."""
    fields = INDEX_HEADER.unpack_from(data)
    if fields[0] != INDEX_MAGIC or fields[1] not in (INDEX_FORMAT, INDEX_FORMAT_PACKED):
        return None
    index = IndexFile(*fields[2:11])
    subjects, entries, deletes, lost = fields[11:15]
    at = INDEX_HEADER.size
    index.deletes = data[at : at + deletes * RUN.size]
    at += len(index.deletes)
    for _ in range(lost):
        first, last = RUN.unpack_from(data, at)
        index.lost.append((first, last))
        at += RUN.size
    index.subjects, at = listed_subjects(data, at, subjects)
    lengths = 4 * entries if fields[1] == INDEX_FORMAT_PACKED else 0
    return index, at, entries * INDEX_ENTRY.size, lengths


class OpenFiles:
    """Bounds how many segment files are open for reading at once."""

    MAX = 256

    def __init__(self) -> None:
        self._open: OrderedDict[str, int] = OrderedDict()

    def get(self, path: Path) -> int:
        """A descriptor for reading. Raises OSError."""
        name = str(path)
        fd = self._open.get(name)
        if fd is not None:
            self._open.move_to_end(name)
            return fd
        fd = files.open_file(path, files.READ_ONLY)
        self._open[name] = fd
        if len(self._open) > self.MAX:
            files.close(self._open.popitem(last=False)[1])
        return fd

    def forget(self, path: Path) -> None:
        """Close the descriptor of a file that goes away or is replaced."""
        fd = self._open.pop(str(path), None)
        if fd is not None:
            files.close(fd)

    def close(self) -> None:
        for fd in self._open.values():
            files.close(fd)
        self._open.clear()
