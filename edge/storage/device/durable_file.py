"""Small files that survive a crash at any moment: whole replacement, and two checksummed slots."""

import errno
import struct
from contextlib import suppress
from pathlib import Path

from headwater.edge.ports import files
from headwater.edge.ports.files import read_file, sync_directory, write_file
from headwater.edge.storage.format.crc import checksum
from headwater.edge.storage.format.errors import FormatError

# One slot: magic, version, reserved, generation, length, checksum of header and content.
SLOT = struct.Struct("<4sHHQI")
SLOT_MAGIC = b"HWS2"
SLOT_VERSION = 1
# A slot begins at a multiple of this, so that no sector holds parts of both.
SLOT_ALIGN = 4096


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that after a crash either the old or the whole new content is there."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        write_file(temporary, data)
    except OSError:
        with suppress(OSError):
            files.remove(temporary, True)
        raise
    files.rename(temporary, path)
    sync_directory(path.parent)


def _encode_slot(generation: int, content: bytes) -> bytes:
    head = SLOT.pack(SLOT_MAGIC, SLOT_VERSION, 0, generation, len(content))
    crc = checksum(content, checksum(head))
    slot = head + struct.pack("<I", crc) + content
    return slot + bytes(-len(slot) % SLOT_ALIGN)


def two_copies(generation: int, content: bytes) -> bytes:
    """All of a two-slot file."""
    slot = _encode_slot(generation, content)
    return slot + slot


def _decode_slot(data: bytes, offset: int) -> tuple[int, bytes] | None:
    head = data[offset : offset + SLOT.size]
    if len(head) < SLOT.size:
        return None
    magic, version, _, generation, length = SLOT.unpack(head)
    start = offset + SLOT.size + 4
    content = data[start : start + length]
    if magic != SLOT_MAGIC or len(content) != length:
        return None
    (crc,) = struct.unpack_from("<I", data, start - 4)
    if crc != checksum(content, checksum(head)):
        return None
    if version != SLOT_VERSION:
        raise FormatError(f"version {version} of a two-slot file is newer than this program")
    return generation, content


class TwoSlotFile:
    """A value kept in two checksummed copies with a generation; the newer valid one counts.

    Both copies are written with every change (as one atomically renamed file), so one damaged
    copy loses nothing. `damaged` tells how many copies were bad when it was read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.generation = 0
        self.damaged = 0

    def read(self) -> bytes | None:
        """The content; None when no copy is valid or there is no file."""
        try:
            data, _ = read_file(self.path)
        except FileNotFoundError:
            return None
        slots = []
        offset = 0
        while offset < len(data):
            slots.append(_decode_slot(data, offset))
            offset += SLOT_ALIGN
        valid = [slot for slot in slots if slot is not None]
        if not valid:
            self.damaged = 2
            return None
        self.damaged = max(2 - len(valid), 0)
        self.generation, content = max(valid, key=lambda slot: slot[0])
        return content

    def replace(self, content: bytes) -> None:
        """`write` over a file that may be there already. Raises OSError."""
        self.read()
        self.write(content)

    def write(self, content: bytes) -> None:
        """Replace the content durably. Raises OSError."""
        slot = _encode_slot(self.generation + 1, content)
        try:
            replace_file(self.path, slot + slot)
        except OSError as error:
            if error.errno != errno.ENOSPC or not self._overwrite(slot):
                raise
        self.generation += 1

    def _overwrite(self, slot: bytes) -> bool:
        """On a full device: write over one copy, and over the other when that one is durable.
        False when the content does not fit, or when there are no two copies to begin with."""
        self.read()
        if self.damaged or not self.path.exists():
            return False
        fd = files.open_file(self.path, files.EXISTING)
        try:
            if files.size_of(fd) != 2 * len(slot):
                return False
            for at in (len(slot), 0):
                files.write_all(fd, slot, at)
                files.sync(fd)
        finally:
            files.close(fd)
        return True
