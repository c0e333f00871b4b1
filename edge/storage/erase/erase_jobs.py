"""Overwriting erased messages in files, and finishing at a start what a crash interrupted.

Every location is looked at before it is written: a file that was rewritten, used again or removed
since does not hold the message any more and is left alone.
"""

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from headwater.edge.ports import files
from headwater.edge.storage.erase.erase_kept import erase_kept
from headwater.edge.storage.erase.erase_rows import IN_BUNDLE, IN_SEGMENT
from headwater.edge.storage.format.errors import invariant
from headwater.edge.storage.format.record_layout import (
    BUNDLE,
    BUNDLED_BYTES,
    HEADER_BYTES,
    MESSAGE,
    bundled,
    bundled_crc,
    erased_bundled,
    erased_record,
    has_stem,
    read_header,
    stem_of,
)
from headwater.edge.storage.log.log_segment import LogSegment
from headwater.edge.storage.segments.segment_files import (
    DATA_START,
    decode_segment_header,
    segment_path,
)
from headwater.edge.storage.segments.segment_jobs import cut_durably, index_path, write_index

LOCATION = struct.Struct("<QqIIIII4x")
# Written at once while a slot is wiped.
WIPE_BYTES = 1 << 20


class Location(NamedTuple):
    """Where a record stands that is to be overwritten."""

    sequence: int
    timestamp: int
    where: int
    """`IN_LOG_FILE`, `IN_SEGMENT` or `IN_BUNDLE`."""
    number: int
    generation: int
    """Of a segment; the offset of the bundle for a message in one."""
    offset: int
    size: int
    """Bytes of the whole record, or of head and body in a bundle."""


def encode_locations(locations: list[Location]) -> bytes:
    """The body of an ERASE record: what is written over can only be records."""
    sound = all(
        at.offset and at.size >= (BUNDLED_BYTES if at.where == IN_BUNDLE else HEADER_BYTES)
        for at in locations
    )
    invariant(sound, "what is to be erased is no record")
    return b"".join(LOCATION.pack(*location) for location in locations)


def decode_locations(body: bytes) -> list[Location]:
    return [Location(*row) for row in LOCATION.iter_unpack(body)]


@dataclass
class EraseJob:
    """What the background does for one round."""

    seed: int
    synced_first: list[Path] = field(default_factory=list)
    """Log slots that hold the intent: durable before anything is overwritten."""
    log_parts: list[tuple[Path, int, bytes]] = field(default_factory=list)
    segments: list[tuple[Path, int, Location]] = field(default_factory=list)
    """(directory of the stream, stream id, location)"""
    indexes: list[tuple[Path, bytes | None]] = field(default_factory=list)
    """Segments whose index file is replaced, or (None) removed."""
    tails: list[tuple[Path, int]] = field(default_factory=list)
    """Segments of which nothing counts from an offset on."""
    again: bool = False
    """Whether the round before failed: what it did to names and sizes may not be durable."""
    kept: tuple[Path, set[tuple[int, int]]] | None = None
    """Where things are kept aside, and (stream id, sequence) of what may be there."""

    def run(self) -> None:
        """Do it, durably. Raises OSError."""
        for path in self.synced_first:
            sync_data(path)
        for path, offset, data in self.log_parts:
            overwrite(path, offset, data)
        for directory, stream, location in self.segments:
            overwrite_in_segment(directory, stream, location, self.seed, False)
        for path, end in self.tails:
            cut_tail(path, end, self.again)
        for path, index in self.indexes:
            replace_index(path, index, self.again)
        if self.kept is not None:
            erase_kept(*self.kept, self.seed)


def sync_data(path: Path) -> None:
    """Make what was written to a file durable; a slot that is gone holds nothing."""
    try:
        fd = files.open_file(path, files.READ_ONLY)
    except FileNotFoundError:
        return
    try:
        files.sync_data(fd)
    finally:
        files.close(fd)


def overwrite(path: Path, offset: int, data: bytes) -> None:
    """Write over a part of a file, durably; nothing happens when there is no such file."""
    try:
        fd = files.open_file(path, files.EXISTING)
    except FileNotFoundError:
        return
    try:
        files.write_all(fd, data, offset)
        files.sync_data(fd)
    finally:
        files.close(fd)


def wipe(path: Path, start: int, end: int) -> None:
    """Write zeros over a part of a file, durably."""
    fd = files.open_file(path, files.EXISTING)
    try:
        zeros = bytes(WIPE_BYTES)
        while start < end:
            part = min(WIPE_BYTES, end - start)
            files.write_all(fd, zeros[:part], start)
            start += part
        files.sync_data(fd)
    finally:
        files.close(fd)


def overwrite_in_segment(
    directory: Path, stream: int, location: Location, seed: int, torn: bool
) -> bool:
    """Overwrite one message in a segment; whether it was there. `torn`: the record may be half
    overwritten already, so it need not verify."""
    path = segment_path(directory, location.number)
    try:
        fd = files.open_file(path, files.EXISTING)
    except FileNotFoundError:
        return False
    try:
        head = decode_segment_header(files.read_at(fd, DATA_START, 0), seed)
        old = files.read_at(fd, HEADER_BYTES, location.offset)
        if head is None or head.generation != location.generation:
            return False
        if files.size_of(fd) < location.offset + location.size:
            return False
        if not fits(old, 0, stream, location, seed, torn):
            return False
        files.write_all(fd, record_for(stream, location, seed), location.offset)
        files.sync_data(fd)
    finally:
        files.close(fd)
    return True


def fits(data: bytes, at: int, stream: int, location: Location, seed: int, torn: bool) -> bool:
    """Whether the message of `location`, or (`torn`) what an overwriting left of it, is there."""
    header = read_header(data, at, seed)
    if header is None:
        return torn
    return (
        header.kind == MESSAGE
        and (header.stream, header.sequence) == (stream, location.sequence)
        and (header.segment, header.offset) == (location.number, location.offset)
        and header.size == location.size
    )


def record_for(stream: int, location: Location, seed: int) -> bytes:
    return erased_record(
        seed,
        stream,
        location.sequence,
        location.timestamp,
        location.number,
        location.offset,
        location.size,
    )


class InBundle(NamedTuple):
    """A message of a bundle that is to be overwritten."""

    whole: bool
    """Whether it verifies: an overwriting that a crash interrupted leaves one that does not."""
    parts: list[tuple[int, bytes]]
    """What is to stand where: the message, and the stem when no other one has it."""


def in_bundle(segment: LogSegment, stream: int, location: Location, seed: int) -> InBundle | None:
    """What is to stand at a location in a bundle of the log; None when it is another one's now."""
    at = location.generation
    if not DATA_START <= at < location.offset < segment.capacity:
        return None
    header = read_header(segment.bytes_at(at, min(HEADER_BYTES, segment.capacity - at)), 0, seed)
    if (
        header is None
        or header.kind != BUNDLE
        or (header.stream, header.segment, header.offset) != (stream, location.number, at)
        or not 0 <= location.sequence - header.sequence < header.subject_len
        or header.size > segment.capacity - at
    ):
        return None
    data = segment.bytes_at(at, header.size)
    where, stem = HEADER_BYTES + header.header_len, stem_of(data, 0, header)
    found, stem_wanted = None, False
    for sequence, message in bundled(data, 0, header):
        if sequence == location.sequence:
            if (where, len(message)) != (location.offset - at, location.size):
                return None
            place = (sequence, location.number, location.offset)
            crc = message[BUNDLED_BYTES - 4 : BUNDLED_BYTES]
            whole = crc == bundled_crc(*place, message, stem)
            found = InBundle(whole, [(location.offset, erased_bundled(*place, message))])
        else:
            stem_wanted = stem_wanted or has_stem(message)
        where += len(message)
    if found is not None and not stem_wanted:
        found.parts.append((at + HEADER_BYTES, bytes(len(stem))))
    return found


def cut_tail(path: Path, end: int, again: bool) -> None:
    """Cut off what an unfinished checkpoint left behind the end of a segment."""
    if path.exists() and (again or path.stat().st_size > end):
        cut_durably(path, end)


def replace_index(path: Path, index: bytes | None, again: bool = False) -> None:
    """Replace or remove the index file of a segment, durably; without room for a new one it is
    removed, and the segment is read at the next start. Raises OSError."""
    if not index_path(path).exists():
        if again and path.parent.exists():
            files.sync_directory(path.parent)
        return
    if index is not None:
        try:
            write_index(path, index)
            return
        except OSError:
            files.remove(index_path(path).with_name(index_path(path).name + ".tmp"), True)
    files.remove(index_path(path), True)
    files.sync_directory(path.parent)


def redo_in_log(segment: LogSegment, end: int, rows: list[tuple[int, Location]], seed: int) -> bool:
    """Finish at a start what concerns one log segment: `rows` are (stream id, location). Whether
    something was only half overwritten. Raises OSError."""
    half = False
    for stream, location in rows:
        if location.where == IN_SEGMENT or location.number != segment.number:
            continue
        if location.offset + location.size > min(end, segment.capacity):
            continue
        old = segment.bytes_at(location.offset, location.size)
        if location.where == IN_BUNDLE:
            found = in_bundle(segment, stream, location, seed)
            if found is not None:
                half = half or not found.whole
                for offset, new in found.parts:
                    segment.fill(new, offset)
                    overwrite(segment.slot.path, offset, new)
            continue
        new = record_for(stream, location, seed)
        if old != new and not fits(old, 0, stream, location, seed, True):
            continue
        # What is as it shall be may be so in memory only, after a failed sync.
        half = half or read_header(old, 0, seed) is None
        segment.fill(new, location.offset)
        overwrite(segment.slot.path, location.offset, new)
    return half


def redo_in_segments(directory: Path, rows: list[tuple[int, Location]], seed: int) -> None:
    """Finish at a start what concerns a stream's segments, before they are read. Raises OSError."""
    for stream, location in rows:
        if location.where == IN_SEGMENT and overwrite_in_segment(
            directory, stream, location, seed, True
        ):
            replace_index(segment_path(directory, location.number), None)
