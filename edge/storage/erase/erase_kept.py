"""Overwrites erased messages in what is kept aside: copies of log segments and of damaged segments.

What lies there need not verify, so a record is known by its magic, stream and sequence alone.
"""

import struct
from pathlib import Path

from headwater.edge.ports import files
from headwater.edge.storage.format.record_layout import (
    BUNDLE,
    HEADER_BYTES,
    MESSAGE,
    bundled,
    erased_bundled,
    erased_record,
    has_stem,
    read_header,
)

MAGIC = b"HWR1"
FIELDS = struct.Struct("<4sBBHIIIIQqQ")
"""The begin of a record's header, up to the stream's id."""
SKIPPED = (".reason", ".dict")


def erase_kept(quarantine: Path, wanted: set[tuple[int, int]], seed: int) -> int:
    """Overwrite messages, (stream id, sequence), in every file of the quarantine, durably; how
    many records were. Indexes beside them, which have their subjects, are removed. Raises
    OSError."""
    count = 0
    if not wanted or not quarantine.is_dir():
        return 0
    for entry in list(quarantine.iterdir()):
        for path in list(entry.iterdir()) if entry.is_dir() else [entry]:
            if path.name.endswith(SKIPPED) or path.name == "meta":
                continue
            found = erase_in(path, wanted, seed)
            if found:
                files.remove(path.with_suffix(".idx"), True)
            count += found
    return count


def erase_in(path: Path, wanted: set[tuple[int, int]], seed: int) -> int:
    """Overwrite records in one file."""
    data = path.read_bytes()
    parts = []
    at = data.find(MAGIC)
    while at >= 0:
        if at % 8 == 0 and at + HEADER_BYTES <= len(data):
            new = overwriting(data, at, wanted, seed)
            if new is not None:
                parts.append((at, new))
            parts += in_bundle(data, at, wanted, seed)
        at = data.find(MAGIC, at + 1)
    if parts:
        fd = files.open_file(path, files.EXISTING)
        try:
            for at, new in parts:
                files.write_all(fd, new, at)
            files.sync_data(fd)
        finally:
            files.close(fd)
    return len(parts)


def in_bundle(
    data: bytes, at: int, wanted: set[tuple[int, int]], seed: int
) -> list[tuple[int, bytes]]:
    """What is to stand where, when a bundle at `at` holds messages that are wanted. Of one that is
    damaged nothing can be told, so zeros go over all of it."""
    kind, *_, stream = FIELDS.unpack_from(data, at)[2:]
    if kind != BUNDLE or not any(stream == of for of, _ in wanted):
        return []
    header = read_header(data, at, seed)
    if header is None:
        end = data.find(MAGIC, at + HEADER_BYTES)
        return [(at, bytes((end if end >= 0 else len(data)) - at))]
    parts, where, count, stem_wanted = [], at + HEADER_BYTES + header.header_len, 0, False
    for sequence, message in bundled(data[: at + header.size], at, header):
        if (stream, sequence) in wanted:
            place = (sequence, header.segment, where - at + header.offset)
            parts.append((where, erased_bundled(*place, message)))
        else:
            stem_wanted = stem_wanted or has_stem(message)
        where += len(message)
        count += 1
    if count < header.subject_len:
        parts.append((where, bytes(max(at + header.size - where, 0))))
    if parts and not stem_wanted:
        parts.append((at + HEADER_BYTES, bytes(header.header_len)))
    return parts


def overwriting(data: bytes, at: int, wanted: set[tuple[int, int]], seed: int) -> bytes | None:
    """What is to stand in the location of the record at `at`; None when it is not wanted. A record
    whose header does not verify may have a wrong length, so zeros go up to the next record."""
    _, _, kind, _, _, _, _, _, sequence, timestamp, stream = FIELDS.unpack_from(data, at)
    if kind != MESSAGE or (stream, sequence) not in wanted:
        return None
    header = read_header(data, at, seed)
    if header is None:
        end = data.find(MAGIC, at + HEADER_BYTES)
        return bytes((end if end >= 0 else len(data)) - at)
    return erased_record(
        seed, stream, sequence, timestamp, header.segment, header.offset, header.size
    )[: len(data) - at]
