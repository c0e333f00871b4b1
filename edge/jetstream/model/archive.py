"""The archive format of stream backups: named entries with sequence, time, headers and payload.

The first entry is `state.json`, then come consumers (`consumers/<name>`, JSON) and messages (named
by their subject); an entry without name or content is the end.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headwater.edge.jetstream.model.s2 import FormatError, uvarint

MAGIC = b"NATSARC1"
NAME_MAX = 1 << 20
CONTENT_MAX = 128 << 20


class ArchiveEntry(NamedTuple):
    """One entry. `timestamp` in ns."""

    name: bytes
    timestamp: int
    sequence: int
    headers: bytes
    payload: bytes


END = ArchiveEntry(b"", 0, 0, b"", b"")


def packed(entry: ArchiveEntry) -> bytes:
    """An entry as it is written; MAGIC goes in front of the first."""
    return b"".join(
        (
            put_uvarint(len(entry.name)),
            put_uvarint(
                entry.timestamp << 1 if entry.timestamp >= 0 else ~entry.timestamp << 1 | 1
            ),
            put_uvarint(entry.sequence),
            put_uvarint(len(entry.headers)),
            put_uvarint(len(entry.payload)),
            entry.name,
            entry.headers,
            entry.payload,
        )
    )


def put_uvarint(value: int) -> bytes:
    """A number in as few groups of seven bits as it needs."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class ArchiveReader:
    """Takes an archive in pieces of any size. Raises FormatError."""

    def __init__(self) -> None:
        self.held = bytearray()
        self.begun = False
        self._awaited = 0
        """Bytes that `held` must have before its first entry can be complete: a large one that
        comes in small pieces is not looked at again for each of them."""

    def feed(self, piece: bytes) -> list[ArchiveEntry]:
        """The entries that have become complete with `piece`."""
        return list(self.entries(piece))

    def entries(self, piece: bytes) -> Iterator[ArchiveEntry]:
        """`feed`, entry by entry; all of them are to be taken before the next piece."""
        self.held += piece
        if len(self.held) < self._awaited:
            return
        if not self.begun:
            if len(self.held) < len(MAGIC):
                return
            if not self.held.startswith(MAGIC):
                raise FormatError("this is no stream archive")
            del self.held[: len(MAGIC)]
            self.begun = True
        data = bytes(self.held)
        at = 0
        while True:
            entry, end = self.parse(data, at)
            if entry is None:
                break
            yield entry
            at = end
        self._awaited = max(0, self._awaited - at)
        del self.held[:at]

    def parse(self, data: bytes, at: int) -> tuple[ArchiveEntry | None, int]:
        """The entry at `at` and its end; None when it is not complete."""
        try:
            name_len, at = uvarint(data, at)
            timestamp, at = uvarint(data, at)
            sequence, at = uvarint(data, at)
            header_len, at = uvarint(data, at)
            payload_len, at = uvarint(data, at)
        except IndexError:
            return None, at
        if name_len > NAME_MAX or header_len + payload_len > CONTENT_MAX:
            raise FormatError("archive entry is too large")
        end = at + name_len + header_len + payload_len
        if end > len(data):
            self._awaited = end
            return None, at
        name = data[at : at + name_len]
        at += name_len
        headers = data[at : at + header_len]
        payload = data[at + header_len : end]
        moment = timestamp >> 1 if not timestamp & 1 else ~(timestamp >> 1)
        return ArchiveEntry(name, moment, sequence, headers, payload), end
