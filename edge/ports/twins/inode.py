"""A file and a directory of a disk in memory: as read now, and as they are on the platter."""

import errno
import os
from dataclasses import dataclass, field

from headwater.edge.ports.ports import Random

SECTOR_BYTES = 512
BLOCK_BYTES = 4096


def failed(number: int, path: str) -> OSError:
    """The error `number` (`errno`) of an operation on `path`, as the system words it."""
    return OSError(number, os.strerror(number), path)


@dataclass(slots=True)
class Change:
    """A write, or a new size when `data` is None."""

    offset: int
    data: bytes | None = None

    def apply(self, image: bytearray) -> None:
        if self.data is None:
            resize(image, self.offset)
        else:
            resize(image, max(len(image), self.offset + len(self.data)))
            image[self.offset : self.offset + len(self.data)] = self.data

    def tear(self, image: bytearray, chance: Random) -> None:
        """Apply some of the sectors. A size comes whole or not at all."""
        if self.data is None:
            return
        at = 0
        while at < len(self.data):
            end = min(len(self.data), at + SECTOR_BYTES - (self.offset + at) % SECTOR_BYTES)
            if chance.below(2):
                Change(self.offset + at, self.data[at:end]).apply(image)
            at = end


def resize(image: bytearray, size: int) -> None:
    """Cut off, or extend with zeros."""
    if size < len(image):
        del image[size:]
    else:
        image.extend(bytes(size - len(image)))


@dataclass(slots=True, eq=False)
class TwinFile:
    """`claimed` are syncs that the disk lied about, oldest first."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[Change] = field(default_factory=list)
    claimed: list[list[Change]] = field(default_factory=list)
    unreadable: list[tuple[int, int]] = field(default_factory=list)
    """Ranges (begin, end) that fail with EIO when they are read."""
    links: int = 0
    opened: int = 0
    locked: bool = False

    def change(self, change: Change) -> None:
        change.apply(self.content)
        self.unsynced.append(change)

    def read(self, length: int, offset: int, path: str) -> bytes:
        """Content, as far as there is some. Raises OSError where a part cannot be read."""
        end = min(offset + length, len(self.content))
        if any(begin < end and offset < stop for begin, stop in self.unreadable):
            raise failed(errno.EIO, path)
        return bytes(self.content[offset:end])

    def sync(self, lies_kept: int) -> None:
        """Make it durable; a lying disk may still lose the last `lies_kept` syncs."""
        self.claimed.append(self.unsynced)
        self.unsynced = []
        while len(self.claimed) > lies_kept:
            for change in self.claimed.pop(0):
                change.apply(self.durable)

    def blocks(self) -> int:
        """Bytes that it takes."""
        return -len(self.content) // BLOCK_BYTES * -BLOCK_BYTES

    def cut(self, chance: Random, lose: str) -> None:
        """The power goes: see TwinFiles.power_cut."""
        kept = len(self.claimed) if lose == "nothing" else chance.below(len(self.claimed) + 1)
        for changes in self.claimed[:kept]:
            for change in changes:
                change.apply(self.durable)
        for change in self.unsynced:
            fate = {"everything": 3, "nothing": 0}.get(lose, chance.below(4))
            if fate == 0:
                change.apply(self.durable)
            elif fate == 1:
                change.tear(self.durable, chance)
        self.claimed = []
        self.unsynced = []
        self.content = bytearray(self.durable)
        self.opened = 0
        self.locked = False


@dataclass(slots=True, eq=False)
class TwinDirectory:
    """Names as seen now, and as they are on the platter."""

    names: dict[str, "Node"] = field(default_factory=dict)
    durable: dict[str, "Node"] = field(default_factory=dict)


Node = TwinFile | TwinDirectory
