"""The last messages of a stream that comes back from quarantine.

When a stream cannot be opened, what it had in the commit log is kept as copies of log segments in
quarantine. When it comes back, these messages are appended again with their sequences, so that
nothing is missing and no sequence is given out twice.
"""

import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwater.edge.storage.directory.quarantine import Quarantine
from headwater.edge.storage.format.record_layout import (
    BUNDLE,
    BUNDLED_BYTES,
    DELETE,
    FLAG_COMPRESSED,
    FLAG_ERASED,
    FLAG_SEALED,
    HEADER_BYTES,
    MESSAGE,
    Header,
    body_of,
    bundled,
    bundled_crc,
    read_header,
    stem_of,
    unbundled,
)
from headwater.edge.storage.log.log_files import DATA_START, decode_header

RUN = struct.Struct("<QQ")
LAST = struct.Struct("<Q")
HEAD, SKIP, LOST = 3, 4, 5

log = logging.getLogger("headwater.storage")


def put_back_tail(store: Any, quarantine: Quarantine) -> int:
    """Append what kept log segments hold of a stream behind its last sequence; returns how many
    messages. They stay in quarantine."""
    count = 0
    for path in kept_segments(quarantine, store.seed):
        data = path.read_bytes()
        for header, at in records(data, store.seed):
            if header.stream != store.stream_id:
                continue
            if header.kind == BUNDLE:
                count += put_back_bundle(store, data, at, header)
            else:
                count += apply(store, header, plain_body(store, data, at, header))
    if count:
        log.warning(
            "stream %s: %d messages came back from the kept log; they are served again",
            store.incarnation,
            count,
        )
    return count


def kept_segments(quarantine: Quarantine, seed: int) -> list[Path]:
    """Copies of log segments, oldest first."""
    found = []
    for name in quarantine.names():
        path = quarantine.path / name
        if not name.startswith("log-") or path.is_dir():
            continue
        with path.open("rb") as file:
            header = decode_header(file.read(DATA_START), seed)
        if header is not None:
            found.append((header.number, path))
    return [path for _, path in sorted(found)]


def records(data: bytes, seed: int) -> Iterator[tuple[Header, int]]:
    """Every record of a log segment that verifies at its position."""
    first = decode_header(data[:DATA_START], seed)
    number = first.number if first is not None else 0
    at = DATA_START
    while at < len(data):
        header = read_header(data, at, seed)
        if header is None or (header.segment, header.offset) != (number, at):
            at += 8
            continue
        yield header, at
        at += header.size


def put_back_bundle(store: Any, data: bytes, at: int, header: Header) -> int:
    """Append the messages of a bundle; those that do not verify are lost."""
    count, reached, stem = 0, header.sequence, stem_of(data, at, header)
    offset = header.offset + HEADER_BYTES + len(stem)
    for sequence, message in bundled(data, at, header):
        crc = bundled_crc(sequence, header.segment, offset, message, stem)
        record = unbundled(store.seed, header, offset, sequence, message, stem)
        own = read_header(record, 0, store.seed)
        whole = crc == message[BUNDLED_BYTES - 4 : BUNDLED_BYTES]
        if own is not None:
            count += apply(store, own, plain_body(store, record, 0, own) if whole else None)
        offset += len(message)
        reached = sequence + 1
    for sequence in range(max(reached, store.last_seq + 1), header.sequence + header.subject_len):
        store.skip(sequence)
        store.add_lost(sequence, "its bundle in the kept log is damaged")
    return count


def plain_body(store: Any, data: bytes, at: int, header: Header) -> bytes | None:
    """The body of a record, opened; None when it is damaged or does not open."""
    body = body_of(data, at, header)
    if body is None or not header.flags & (FLAG_SEALED | FLAG_COMPRESSED):
        return body
    record = data[at : at + HEADER_BYTES + header.length]
    plain: bytes | None = store.packer.plain_of(record)
    return plain


def apply(store: Any, header: Header, body: bytes | None) -> int:
    """Do what a record says; 1 when it was a message that came back."""
    if header.kind == MESSAGE and header.sequence > store.last_seq:
        if body is None or header.flags & FLAG_ERASED:
            store.skip(header.sequence)
            if body is None:
                store.add_lost(header.sequence, "its body in the kept log is damaged")
            return 0
        subject = body[: header.subject_len]
        block = body[header.subject_len : header.subject_len + header.header_len]
        payload = body[header.subject_len + header.header_len :]
        store.add_message(subject, payload, block, header.timestamp, header.sequence)
        return 1
    if body is None:
        return 0
    if header.kind in (DELETE, LOST):
        for first, last in RUN.iter_unpack(body):
            for sequence in range(max(first, store.first_seq), min(last, store.last_seq) + 1):
                store.delete(sequence, False)
    elif header.kind == HEAD:
        store.skip(LAST.unpack_from(body)[0])
        store.purge_head(header.sequence)
    elif header.kind == SKIP:
        store.skip(header.sequence)
    return 0
