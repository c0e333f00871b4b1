"""Small files that survive a crash at any moment: whole replacement, and two checksummed copies."""

import errno
import struct
from contextlib import suppress
from pathlib import Path

from headwater.edge.ports import files
from headwater.edge.ports.files import read_file, sync_directory, write_file
from headwater.edge.storage.format.crc import checksum
from headwater.edge.storage.format.errors import FormatError, invariant

# One copy: magic, version, reserved, generation, length, checksum of header and content.
COPY_HEAD = struct.Struct("<4sHHQI")
COPY_MAGIC = b"HWS2"
COPY_VERSION = 1
# Stands where a copy begins while it is written in place: such a copy is not damaged, but not done.
BEGUN_MAGIC = b"HWS~"
# A copy begins at a multiple of this, so that no sector holds parts of both.
COPY_ALIGN = 4096
# What a device writes whole or not at all.
SECTOR = 512


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


def _encode_copy(generation: int, content: bytes) -> bytes:
    head = COPY_HEAD.pack(COPY_MAGIC, COPY_VERSION, 0, generation, len(content))
    crc = checksum(content, checksum(head))
    copy = head + struct.pack("<I", crc) + content
    return copy + bytes(-len(copy) % COPY_ALIGN)


def two_copies(generation: int, content: bytes) -> bytes:
    """All of a two-copy file."""
    copy = _encode_copy(generation, content)
    return copy + copy


def _write_in_place(fd: int, copy: bytes, at: int) -> None:
    """Write over a copy, so that whoever reads it after a crash knows that it was being written."""
    steps = (
        (BEGUN_MAGIC.ljust(SECTOR, b"\0"), at),
        (copy[SECTOR:], at + SECTOR),
        (copy[:SECTOR], at),
    )
    for piece, place in steps:
        files.write_all(fd, piece, place)
        files.sync(fd)


def _decode_copy(data: bytes, offset: int) -> tuple[int, bytes] | None:
    head = data[offset : offset + COPY_HEAD.size]
    if len(head) < COPY_HEAD.size:
        return None
    magic, version, _, generation, length = COPY_HEAD.unpack(head)
    start = offset + COPY_HEAD.size + 4
    content = data[start : start + length]
    if magic != COPY_MAGIC or len(content) != length:
        return None
    (crc,) = struct.unpack_from("<I", data, start - 4)
    if crc != checksum(content, checksum(head)):
        return None
    if version != COPY_VERSION:
        raise FormatError(
            f"a two-copy file has version {version}, this program knows {COPY_VERSION}: use a "
            "newer one"
        )
    return generation, content


class TwoCopyFile:
    """A value kept in two checksummed copies with a generation; the newer valid one counts.

    Both copies are written with every change (as one atomically renamed file), so one damaged
    copy loses nothing. `damaged` tells how many copies were bad when it was read, `begun` where
    one stands whose writing a crash has ended; -1 for none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.generation = 0
        self.damaged = 0
        self.begun = -1

    def read(self) -> bytes | None:
        """The content; None when no copy is valid or there is no file."""
        try:
            data, _ = read_file(self.path)
        except FileNotFoundError:
            return None
        copies = []
        offset = 0
        while offset < len(data):
            copies.append(_decode_copy(data, offset))
            offset += COPY_ALIGN
        valid = [copy for copy in copies if copy is not None]
        if not valid:
            self.damaged = 2
            return None
        places = (0, len(data) // 2)
        self.begun = next((at for at in places if data[at:].startswith(BEGUN_MAGIC)), -1)
        self.damaged = max(2 - len(valid) - (self.begun >= 0), 0)
        self.generation, content = max(valid, key=lambda copy: copy[0])
        return content

    def replace(self, content: bytes) -> None:
        """`write` over a file that may be there already. Raises OSError."""
        self.read()
        self.write(content)

    def write(self, content: bytes) -> None:
        """Replace the content durably. Raises OSError."""
        invariant(len(content) < 1 << 32, f"{self.path} would have {len(content)} bytes")
        copy = _encode_copy(self.generation + 1, content)
        try:
            replace_file(self.path, copy + copy)
        except OSError as error:
            if error.errno != errno.ENOSPC or not self._overwrite(copy):
                raise
        self.generation += 1

    def _overwrite(self, copy: bytes) -> bool:
        """On a full device: write over one copy, and over the other when that one is durable.
        False when the content does not fit, or when there are no two copies to begin with."""
        self.read()
        if self.damaged or not self.path.exists():
            return False
        fd = files.open_file(self.path, files.EXISTING)
        try:
            if files.size_of(fd) != 2 * len(copy):
                return False
            for at in (0, len(copy)) if self.begun == 0 else (len(copy), 0):
                _write_in_place(fd, copy, at)
        finally:
            files.close(fd)
        return True
