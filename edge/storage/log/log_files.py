"""The files of the commit log: preallocated slots that are used again and again.

A slot's name says nothing; the header at its start tells which segment of the log it holds. The
header is there twice, and also tells where the segment before ended, so that a start knows what
every segment but the last must hold, and which is the oldest one still needed.
"""

import json
import logging
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headwater.edge.ports import files
from headwater.edge.ports.allocation import Allocation
from headwater.edge.storage.device.ballast import Ballast
from headwater.edge.storage.device.durable_file import TwoCopyFile
from headwater.edge.storage.format.crc import checksum
from headwater.edge.storage.format.errors import invariant
from headwater.edge.storage.format.problem import Problem, ProblemKind

HEADER = struct.Struct("<4sIIIIIIIqQ16s")
HEADER_MAGIC = b"HWLG"
FORMAT = 1
HEADER_COPIES = (0, 256)
DATA_START = 512
UNFINISHED = ".new"
SLOT_MIN = 16 << 10
SQUEEZED_SHARE = 8
# Room that is held back. Starts that follow crashes on a full device need it: each takes a slot,
# and the first two move what two slots hold before they get those back.
BALLAST_SEGMENTS = 2
# Small slots that are kept for starts: nobody else on the device can take that room between a
# start that needs it and the next one. The first ones serve whatever finds no other room.
SMALL_MAX = 4
SMALL_KEPT = 2

log = logging.getLogger("headwater.storage")


@dataclass
class LogHeader:
    """First bytes of a log segment."""

    number: int
    previous: int
    """Number of the segment before, 0 for the first."""
    previous_end: int
    """Offset at which the segment before ended."""
    previous_chain: int
    """Checksum of the last record before this segment."""
    oldest: int
    """Oldest segment that was needed when this one began."""
    capacity: int
    created: int
    """ns since the epoch."""
    first_batch: int

    def encode(self, seed: int, node_id: bytes) -> bytes:
        """Both copies, padded to where records begin."""
        ordered = self.previous < self.number and self.oldest <= self.number
        invariant(ordered, f"log segment {self.number} follows {self.previous}")
        head = HEADER.pack(
            HEADER_MAGIC,
            FORMAT,
            self.number,
            self.previous,
            self.previous_end,
            self.previous_chain,
            self.oldest,
            self.capacity,
            self.created,
            self.first_batch,
            node_id,
        )
        copy = (head + struct.pack("<I", checksum(head, seed))).ljust(256, b"\0")
        return copy * 2


def decode_header(data: bytes, seed: int) -> LogHeader | None:
    """The header of a slot; None when neither copy is valid."""
    for at in HEADER_COPIES:
        head = data[at : at + HEADER.size]
        tail = data[at + HEADER.size : at + HEADER.size + 4]
        if len(tail) == 4 and struct.unpack("<I", tail)[0] == checksum(head, seed):
            fields = HEADER.unpack(head)
            if fields[0] == HEADER_MAGIC and fields[1] == FORMAT:
                return LogHeader(*fields[2:10])
    return None


@dataclass
class LogSlot:
    """One preallocated file."""

    path: Path
    fd: int
    capacity: int
    blank: bool = False
    """Whether all is zero behind what the slot's present segment wrote."""
    direct: int = -1
    """Descriptor for writes that bypass the page cache; -1 when there is none."""
    users: int = 0
    """Jobs beside the event loop that may still write to it: until they are over it is not used
    again."""
    parting: Callable[[], None] | None = None
    """What is to be done with it when they are over."""

    def close(self) -> None:
        """Give the descriptors back."""
        files.close(self.fd)
        if self.direct >= 0:
            files.close(self.direct)


class LogFiles:
    """Makes, keeps and removes slots. One spare stays for records that are not messages, so that
    deletes and consumer progress have room when the device is full.

    A list beside the directory names every slot and its size. A slot is made under another name,
    listed last and taken from the list first, so a listed slot that is missing or shorter than
    listed was damaged from outside: no crash leaves that behind.
    """

    SPARES_MAX = 2

    def __init__(
        self, directory: Path, segment_bytes: int, allocation: Allocation | None = None
    ) -> None:
        self.allocation = allocation or Allocation(directory)
        self.directory = directory
        self.segment_bytes = segment_bytes
        self.spares: list[LogSlot] = []
        self.small: list[LogSlot] = []
        """Spares of `least` bytes."""
        self._parting: list[LogSlot] = []
        self.listed: dict[str, int] = {}
        self.ballast = Ballast(directory.parent / "ballast", BALLAST_SEGMENTS * segment_bytes)
        self.scarce = False
        """Whether a start found no room for all that is held back."""
        self._list = TwoCopyFile(directory.parent / "slots")
        self._next = 0

    @property
    def least(self) -> int:
        """The least that a slot has when a device is full."""
        return min(SLOT_MIN, self.segment_bytes)

    def load_list(self, expected: bool) -> list[Problem]:
        """Read which slots there should be; returns what is wrong with the list itself.
        `expected`: a log must have been there. Before there is a slot the list is empty."""
        self.ballast.find()
        self.scarce = self.ballast.missing > files.free_bytes(self.directory)
        content = self._list.read()
        found = self.existing()
        for path in self.directory.glob(f"*{UNFINISHED}"):
            files.remove(path)
        if content is not None:
            self.listed = json.loads(content)
            if self._list.damaged:
                self._save()
                return [self._repaired(": a copy was damaged; it was written again")]
            return []
        self.listed = {path.name: path.stat().st_size for path in found}
        if self._list.damaged:
            return [self._repaired(" is damaged in both copies; it was made again")]
        if found:
            return [self._repaired(" is missing; it was made again")]
        self._save()
        gone = Problem.of(ProblemKind.LOST, self.directory, ": the log and its list are missing")
        return [gone] if expected else []

    def _repaired(self, text: str) -> Problem:
        """The list of slots is there again."""
        return Problem.of(ProblemKind.REPAIRED, self._list.path, text)

    def accept(self) -> None:
        """What recovery found is all there is: list that. Raises OSError."""
        sizes = {path.name: path.stat().st_size for path in self.existing()}
        if sizes != self.listed:
            self.listed = sizes
            self._save()

    def write_list(self) -> None:
        """Write the list of slots again: its file is damaged. Raises OSError."""
        self._save()

    def _save(self) -> None:
        self._list.write(json.dumps(self.listed).encode())

    def create(self, capacity: int) -> LogSlot:
        """A new file of `capacity` bytes. Raises OSError (ENOSPC) and leaves nothing then."""
        slot = self._make(capacity)
        try:
            self._save()
        except OSError:
            if slot.path.name in json.loads(self._list.read() or b"{}"):
                self.spares.append(slot)
            else:
                self._remove(slot)
            raise
        return slot

    def _make(self, capacity: int) -> LogSlot:
        """A new file, not yet listed durably."""
        made: list[LogSlot] = []
        self._make_several(1, capacity, made)
        return made[0]

    def _make_several(self, number: int, capacity: int, made: list[LogSlot]) -> None:
        """Add so many new files to `made`, not yet listed durably; fewer when it raises OSError.

        All have their room before the first is synced: a journal commits them at once.
        """
        begun: list[tuple[Path, int]] = []
        try:
            for _ in range(number):
                begun.append(self._begin(capacity))
        finally:
            made += self._finish(begun, capacity)

    def _begin(self, capacity: int) -> tuple[Path, int]:
        """A file with room under its unfinished name, and open. The path is that of the slot."""
        while True:
            path = self.directory / f"slot-{self._next:04d}.log"
            self._next += 1
            if path.name not in self.listed and not path.exists():
                break
        new = path.with_name(path.name + UNFINISHED)
        fd = files.open_file(new, files.REPLACE)
        try:
            files.allocate(fd, capacity)
        except OSError:
            files.close(fd)
            files.remove(new, True)
            raise
        return path, fd

    def _finish(self, begun: list[tuple[Path, int]], capacity: int) -> list[LogSlot]:
        """Durable slots of what was begun: all or, raising OSError, none."""
        if not begun:
            return []
        try:
            for _, fd in begun:
                files.sync(fd)
            for path, _ in begun:
                files.rename(path.with_name(path.name + UNFINISHED), path)
            files.sync_directory(self.directory)
        except OSError:
            for path, fd in begun:
                files.close(fd)
                files.remove(path.with_name(path.name + UNFINISHED), True)
                files.remove(path, True)
            raise
        self.listed.update({path.name: capacity for path, _ in begun})
        return [
            LogSlot(path, fd, capacity, blank=True, direct=files.open_direct(path))
            for path, fd in begun
        ]

    def open(self, path: Path) -> LogSlot:
        """A slot that exists."""
        fd = files.open_file(path, files.EXISTING)
        return LogSlot(path, fd, files.size_of(fd), direct=files.open_direct(path))

    def existing(self) -> list[Path]:
        return sorted(self.directory.glob("slot-*.log"))

    def top_up(self) -> None:
        """Make what is kept for bad times, and a spare to go on with. Raises OSError."""
        made: list[LogSlot] = []
        small: list[LogSlot] = []
        self.allocation.check()
        try:
            self._make_several(SMALL_MAX - len(self.small), self.least, small)
            self.ballast.make()
            self._make_several(self.SPARES_MAX - len(self.spares), self.segment_bytes, made)
        finally:
            if made or small:
                self.spares += made
                self.small += small
                self._save()

    def allocate(self, need: int, emergency: bool) -> LogSlot:
        """A slot for `need` bytes. In an emergency the last spare is taken, then the ballast's
        room, then a small slot has to do. Raises OSError."""
        if not emergency:
            self.allocation.check()
            self.ballast.make()
        if need > self.segment_bytes:
            return self.create(need)
        if len(self.spares) > 1 or (self.spares and not self.ballast.there):
            return self.spares.pop()
        try:
            return self.create(self.segment_bytes)
        except OSError:
            if not emergency:
                raise
            if self.spares:
                return self.spares.pop()
            if need <= self.least and len(self.small) > SMALL_KEPT:
                return self.small.pop()
            return self._squeeze(need)

    def allocate_first(self) -> LogSlot:
        """A slot to start with. Raises OSError."""
        try:
            return self.allocate(self.least, True)
        except OSError:
            if not self.small:
                raise
            return self.small.pop()

    def pop_unwiped(self) -> LogSlot | None:
        """A spare in which something of its earlier uses may stand."""
        for spares in (self.spares, self.small):
            for slot in spares:
                if not slot.blank:
                    spares.remove(slot)
                    return slot
        return None

    def stand_in(self) -> LogSlot:
        """What nothing is ever written to, for a log that has no file yet."""
        fd = files.open_file(self.directory.parent / "lock", files.READ_ONLY)
        return LogSlot(self.directory / "none", fd, self.segment_bytes, blank=True)

    def _squeeze(self, need: int) -> LogSlot:
        """A small slot: what is left of the ballast's room is for checkpointing other slots."""
        self.ballast.free()
        least = max(need, self.least)
        size = max(least, self.segment_bytes // SQUEEZED_SHARE)
        try:
            while True:
                try:
                    return self.create(size)
                except OSError:
                    if size == least:
                        raise
                    size = max(least, size // 2)
        finally:
            self.ballast.allocate()

    def pin(self, slot: LogSlot) -> None:
        """A job beside the loop is about to write to a slot: whoever gives the slot back meanwhile
        gives it back when `unpin` was called for every `pin`."""
        slot.users += 1

    def unpin(self, slot: LogSlot) -> None:
        """The job is over."""
        slot.users -= 1
        if slot.users == 0 and slot.parting is not None:
            self._parting.remove(slot)
            parting, slot.parting = slot.parting, None
            parting()

    def _part(self, slot: LogSlot, parting: Callable[[], None]) -> bool:
        """Whether somebody still writes to a slot, so that `parting` comes later."""
        if slot.users:
            slot.parting = parting
            self._parting.append(slot)
        return slot.users > 0

    def free_slot(self, slot: LogSlot, blank: bool = False) -> None:
        """Keep a slot for later, or remove it when there are enough. `blank`: it was wiped."""
        if self._part(slot, lambda: self.free_slot(slot)):
            return
        slot.blank = blank
        if slot.capacity == self.least and len(self.small) < SMALL_MAX:
            self.small.append(slot)
        elif not self.ballast.there:
            self.discard(slot)
            self.restore_ballast()
        elif slot.capacity == self.segment_bytes and len(self.spares) < self.SPARES_MAX:
            self.spares.append(slot)
        else:
            self.discard(slot)

    def make_room(self) -> bool:
        """Give back some of what is held for bad times; whether there was any."""
        if self.ballast.free():
            return True
        spares = len(self.spares)
        if spares:
            self.discard(self.spares.pop())
        return len(self.spares) < spares

    def restore_ballast(self) -> None:
        """Have the ballast again, for spares if need be, or as much of it as there is room for."""
        while not self.ballast.there:
            try:
                self.ballast.make()
            except OSError:
                if not self.make_room():
                    self.ballast.allocate()
                    return

    def discard(self, slot: LogSlot) -> None:
        """Remove a slot. When the list cannot be written it stays, as a spare if it can be one."""
        if self._part(slot, lambda: self.discard(slot)):
            return
        capacity = self.listed.pop(slot.path.name, None)
        try:
            if capacity is not None:
                self._save()
        except OSError as error:
            self.listed[slot.path.name] = capacity or 0
            if slot.capacity == self.segment_bytes:
                self.spares.append(slot)
                return
            log.warning("%s cannot be removed (%s): the next start uses it", slot.path, error)
            slot.close()
            return
        try:
            self._remove(slot)
        except OSError as error:
            log.warning("%s cannot be removed (%s): the next start uses it", slot.path, error)

    def _remove(self, slot: LogSlot) -> None:
        self.listed.pop(slot.path.name, None)
        slot.close()
        files.remove(slot.path, True)

    def close(self) -> None:
        for slot in self.spares + self.small + self._parting:
            # Jobs may end later than the node: nothing is given back any more.
            slot.parting = None
            slot.close()
        self.spares = []
        self.small = []
        self._parting = []
