"""A disk in memory that keeps what is synced apart from what is not.

A power cut keeps any of the writes that were not synced, in part, in any combination, at the
granularity of sectors. Names that were not synced come and go likewise. A lying disk says that it
synced and may lose the last few syncs all the same. Bits can be flipped.
"""

import errno
from dataclasses import dataclass, field

from headwater.edge.ports.ports import Random

SECTOR_BYTES = 512


@dataclass(slots=True)
class TwinFile:
    """Content as read now, as it is on the platter, and the writes between the two."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)
    claimed: list[list[tuple[int, bytes]]] = field(default_factory=list)
    """Syncs that the disk lied about, oldest first."""


def put(image: bytearray, offset: int, data: bytes) -> None:
    """Write into an image, with zeros in a gap."""
    if len(image) < offset:
        image.extend(bytes(offset - len(image)))
    image[offset : offset + len(data)] = data


class TwinDisk:
    """Deterministic: chance comes in through the methods that need it."""

    CLAIMED_MAX = 4
    """Syncs of a file that a lying disk may lose."""

    def __init__(self) -> None:
        self.files: dict[str, TwinFile] = {}
        self.durable_names: dict[str, TwinFile] = {}
        self.lying = False
        self.full = False
        self.sync_fails = False
        """The next sync fails with EIO. What it was to write is never written, and still reads as
        written until the power goes, as on Linux."""
        self.unreadable = False
        """Reads fail with EIO."""
        self.syncs = 0

    # -- the port -------------------------------------------------------------

    def names(self) -> list[str]:
        return sorted(self.files)

    def read(self, name: str) -> bytes:
        if self.unreadable:
            raise OSError(errno.EIO, "cannot be read", name)
        return bytes(self._file(name).content)

    def write(self, name: str, offset: int, data: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "no room", name)
        file = self.files.setdefault(name, TwinFile())
        put(file.content, offset, data)
        file.unsynced.append((offset, bytes(data)))

    def sync(self, name: str) -> None:
        file = self._file(name)
        self.syncs += 1
        if self.sync_fails and file.unsynced:
            self.sync_fails = False
            file.unsynced = []
            raise OSError(errno.EIO, "cannot be written", name)
        file.claimed.append(file.unsynced)
        file.unsynced = []
        while file.claimed and (not self.lying or len(file.claimed) > self.CLAIMED_MAX):
            for offset, data in file.claimed.pop(0):
                put(file.durable, offset, data)

    def flush(self) -> None:
        """Syncs that were claimed really happen."""
        for file in self.files.values():
            for offset, data in (change for sync in file.claimed for change in sync):
                put(file.durable, offset, data)
            file.claimed = []

    def sync_names(self) -> None:
        self.durable_names = dict(self.files)

    def rename(self, old: str, new: str) -> None:
        self.files[new] = self._file(old)
        del self.files[old]

    def remove(self, name: str) -> None:
        self._file(name)
        del self.files[name]

    def _file(self, name: str) -> TwinFile:
        try:
            return self.files[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", name) from None

    # -- what happens to it ---------------------------------------------------

    def power_cut(self, chance: Random) -> None:
        """Everything that is not durable may be lost, whole or in part."""
        names = dict(self.durable_names)
        for name in sorted({*self.files, *names}):
            if self.files.get(name) is not names.get(name) and chance.below(2):
                if name in self.files:
                    names[name] = self.files[name]
                else:
                    del names[name]
        self.files = names
        self.durable_names = dict(names)
        for file in {id(file): file for _, file in sorted(names.items())}.values():
            self._cut(file, chance)

    def _cut(self, file: TwinFile, chance: Random) -> None:
        for sync in file.claimed[: chance.below(len(file.claimed) + 1)]:
            for offset, data in sync:
                put(file.durable, offset, data)
        for offset, data in file.unsynced:
            fate = chance.below(4)
            if fate == 0:
                put(file.durable, offset, data)
            elif fate == 1:
                self._tear(file, offset, data, chance)
        file.claimed = []
        file.unsynced = []
        file.content = bytearray(file.durable)

    def _tear(self, file: TwinFile, offset: int, data: bytes, chance: Random) -> None:
        at = 0
        while at < len(data):
            end = min(len(data), at + SECTOR_BYTES - (offset + at) % SECTOR_BYTES)
            if chance.below(2):
                put(file.durable, offset + at, data[at:end])
            at = end

    def flip(self, name: str, offset: int, bit: int) -> None:
        """Rot: one bit of a file changes, on the platter and for all who read."""
        file = self._file(name)
        for image in (file.content, file.durable):
            if offset < len(image):
                image[offset] ^= 1 << bit

    def wipe(self) -> None:
        """Another disk, empty."""
        self.files = {}
        self.durable_names = {}
