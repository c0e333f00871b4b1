"""Hard state: two checksummed copies for each group, written in turn.

    u64 generation  u64 group  u16 length  content  u32 crc over all before

A copy has a sector of its own, so that no torn write hurts both.
"""

import hashlib
import struct
from dataclasses import dataclass

from headwater.edge.ports.ports import Disk
from headwater.edge.storage.format.crc import checksum
from headwater.hub.raft.model.hard_state import HardState, decode_hard_state

NAME = "raft.hard"
COPY_BYTES = 512
HEAD = struct.Struct("<QQH")
CRC = struct.Struct("<I")
GROUPS_MAX = 1 << 16
"""Groups of one node: 64 MiB of copies."""


@dataclass(slots=True)
class Location:
    """Where a group's copies are, and which generation was written last."""

    number: int
    generation: int = 0


def encode_copy(generation: int, group: int, hard: HardState) -> bytes:
    """One copy."""
    content = hard.encode()
    whole = HEAD.pack(generation, group, len(content)) + content
    return (whole + CRC.pack(int(checksum(whole)))).ljust(COPY_BYTES, b"\0")


def decode_copy(data: bytes) -> tuple[int, int, HardState] | None:
    """Generation, group and content; None when the copy is not good."""
    if len(data) < HEAD.size:
        return None
    generation, group, length = HEAD.unpack_from(data)
    whole = data[: HEAD.size + length]
    tail = data[HEAD.size + length : HEAD.size + length + CRC.size]
    if not generation or len(tail) < CRC.size or CRC.unpack(tail)[0] != int(checksum(whole)):
        return None
    try:
        return generation, group, decode_hard_state(whole[HEAD.size :])
    except ValueError:
        return None


class HardStateFile:
    """All copies of a node. `suspect` tells that a copy was there and is not good: then the good
    one beside it may be the older one."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.locations: dict[int, Location] = {}
        self.found: dict[int, HardState] = {}
        self.suspect = False
        self._next = 0
        self._free: list[int] = []
        self._load()

    def digest(self) -> bytes:
        """Of all copies, as they are on the disk now. No CRC: that of a text with its own CRC
        behind it is the same for every text."""
        return hashlib.blake2b(self._content(), digest_size=8).digest()

    def _content(self) -> bytes:
        return self.disk.read(NAME) if NAME in self.disk.names() else b""

    def _load(self) -> None:
        data = self._content()
        pairs = -(-len(data) // (2 * COPY_BYTES))
        for number in range(pairs):
            at = 2 * number * COPY_BYTES
            raw = [data[at + i * COPY_BYTES : at + (i + 1) * COPY_BYTES] for i in (0, 1)]
            good = [copy for copy in map(decode_copy, raw) if copy is not None]
            self.suspect |= len(good) < sum(1 for each in raw if each.strip(b"\0"))
            self.suspect |= len({copy[1] for copy in good}) > 1
            if good:
                generation, group, hard = max(good, key=lambda copy: copy[0])
                self.locations[group] = Location(number, generation)
                self.found[group] = hard
            elif not any(each.strip(b"\0") for each in raw):
                self._free.append(number)
        self._next = pairs

    def write(self, group: int, hard: HardState) -> None:
        """Write the older copy of a group; durable after `sync`. Raises OSError."""
        location = self.locations.get(group)
        if location is None:
            location = self.locations[group] = Location(self._allocate())
        location.generation += 1
        offset = (2 * location.number + location.generation % 2) * COPY_BYTES
        self.disk.write(NAME, offset, encode_copy(location.generation, group, hard))

    def _allocate(self) -> int:
        if self._free:
            return self._free.pop()
        if self._next >= GROUPS_MAX:
            raise OSError(f"more than {GROUPS_MAX} groups")
        self._next += 1
        return self._next - 1

    def erase(self, group: int) -> None:
        """A group is gone; its copies are free when this is synced. Raises OSError; it is to be
        called again then."""
        location = self.locations.get(group)
        if location is not None:
            self.disk.write(NAME, 2 * location.number * COPY_BYTES, bytes(2 * COPY_BYTES))
            del self.locations[group]
            self._free.append(location.number)
        self.found.pop(group, None)

    def sync(self) -> None:
        self.disk.sync(NAME)
