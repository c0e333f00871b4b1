"""A backup in one file: stream after stream, in blocks with checksums, with an end that tells that
nothing is missing.

    HWBACKUP1\\n
    blocks: 4s kind, u32 length, u32 CRC-32C of kind, length and content, content

Numbers are little endian. A `STRM` block is JSON (account, config, state); the `DATA` blocks after
it are, put together, what JetStream's snapshot API sends for the stream; `DONE` (JSON: messages)
ends the stream, and `LAST` (JSON: streams) the file. The file gets its name when it is whole.
"""

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from headwater.edge.jetstream.model import archive, s2
from headwater.edge.ports.files import sync_directory
from headwater.edge.storage.format.crc import checksum

MAGIC = b"HWBACKUP1\n"
HEAD = struct.Struct("<4sII")
STREAM, DATA, DONE, LAST = b"STRM", b"DATA", b"DONE", b"LAST"
BLOCK_MAX = 32 << 20
FORMAT = 1


class BackupError(Exception):
    """A backup cannot be written, read or believed."""


class BackupWriter:
    """Writes `path`, which must not be there. `finish`, or leave the context: then it is gone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.streams = 0
        self._partial = path.with_name(path.name + ".partial")
        self._counter = EntryCounter()
        if path.exists():
            raise BackupError(f"{path} exists already")
        self._file: BinaryIO = self._partial.open("wb")
        self._file.write(MAGIC)

    def __enter__(self) -> "BackupWriter":
        return self

    def __exit__(self, *error: object) -> None:
        if not self._file.closed:
            self._file.close()
            self._partial.unlink(missing_ok=True)

    @property
    def counted(self) -> int:
        """Messages of the stream so far."""
        return self._counter.messages

    def _block(self, kind: bytes, content: bytes) -> None:
        self._file.write(HEAD.pack(kind, len(content), block_crc(kind, content)) + content)

    def begin(self, account: str, config: Any, state: Any) -> None:
        """The stream that comes next; `config` and `state` as JetStream's API has them."""
        head = {"format": FORMAT, "account": account, "config": config, "state": state}
        self._block(STREAM, json.dumps(head).encode())
        self._counter = EntryCounter()

    def data(self, chunk: bytes) -> None:
        """A piece of the stream's archive. Raises BackupError when it is none."""
        self._counter.feed(chunk)
        self._block(DATA, chunk)

    def end(self) -> int:
        """The stream is whole; returns its messages. Raises BackupError when it is not."""
        if not self._counter.complete:
            raise BackupError("the stream's archive ended too early")
        self._block(DONE, json.dumps({"messages": self._counter.messages}).encode())
        self.streams += 1
        return self._counter.messages

    def finish(self) -> None:
        """Everything is written: make it durable, and let it have its name."""
        self._block(LAST, json.dumps({"streams": self.streams}).encode())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        if self.path.exists():
            raise BackupError(f"{self.path} exists already")
        self._partial.rename(self.path)
        sync_directory(self.path.parent)


class EntryCounter:
    """Follows an archive: how many messages, and whether it came to its end."""

    def __init__(self) -> None:
        self.messages = 0
        self.complete = False
        self._frames = s2.FrameReader()
        self._entries = archive.ArchiveReader()

    def feed(self, chunk: bytes) -> list[archive.ArchiveEntry]:
        """The entries that became complete. Raises BackupError."""
        try:
            found = self._entries.feed(self._frames.feed(chunk))
        except ValueError as error:
            raise BackupError(f"the archive is damaged: {error}") from error
        for entry in found:
            if self.complete:
                raise BackupError("the archive goes on after its end")
            if entry == archive.END:
                self.complete = True
            elif entry.sequence:
                self.messages += 1
        return found


class BackupReader:
    """Reads a backup, verifying every byte. Raises BackupError on the first that is wrong."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        self.read = 0
        """Bytes read so far."""

    def blocks(self) -> Iterator[tuple[bytes, bytes]]:
        """(kind, content) of all blocks. Raises BackupError, OSError."""
        with self.path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise BackupError(f"{self.path} is no backup of Headwater")
            kind = b""
            while kind != LAST:
                kind, content = self._next(file)
                self.read = file.tell()
                yield kind, content
            if file.read(1):
                raise BackupError(f"{self.path} goes on after its end")

    def _next(self, file: BinaryIO) -> tuple[bytes, bytes]:
        at = file.tell()
        head = file.read(HEAD.size)
        if len(head) < HEAD.size:
            raise BackupError(f"{self.path} is not complete: it ends at byte {at}")
        kind, length, crc = HEAD.unpack(head)
        content = file.read(length) if length <= BLOCK_MAX else b""
        if len(content) != length or block_crc(kind, content) != crc:
            raise BackupError(f"{self.path} is damaged or cut off at byte {at}")
        return kind, content

    def streams(self) -> Iterator["BackedUp"]:
        """Every stream; its `chunks` must be used up before the next one is taken."""
        blocks = self.blocks()
        count = 0
        for kind, content in blocks:
            if kind == STREAM:
                head = json.loads(content)
                if head["format"] > FORMAT:
                    raise BackupError(f"{self.path} was written by a newer program")
                yield BackedUp(head, blocks, self.path)
                count += 1
            elif kind != LAST or json.loads(content)["streams"] != count:
                raise BackupError(f"{self.path}: a stream is missing")


class BackedUp:
    """One stream of a backup."""

    def __init__(
        self, head: dict[str, Any], blocks: Iterator[tuple[bytes, bytes]], path: Path
    ) -> None:
        self.account = str(head["account"])
        self.config: dict[str, Any] = head["config"]
        self.state: dict[str, Any] = head["state"]
        self.messages = 0
        """Known when all chunks were read."""
        self._blocks = blocks
        self._path = path

    @property
    def name(self) -> str:
        return str(self.config["name"])

    def chunks(self) -> Iterator[tuple[bytes, list[archive.ArchiveEntry]]]:
        """Pieces of the archive, each with the entries that it completes. Raises BackupError."""
        counter = EntryCounter()
        for kind, content in self._blocks:
            if kind == DONE:
                self.messages = counter.messages
                if not counter.complete or json.loads(content)["messages"] != counter.messages:
                    raise BackupError(f"{self._path}: stream {self.name} is not complete")
                return
            if kind != DATA:
                break
            yield content, counter.feed(content)
        raise BackupError(f"{self._path}: stream {self.name} is not complete")


def block_crc(kind: bytes, content: bytes) -> int:
    """Over kind, length and content."""
    return int(checksum(content, checksum(HEAD.pack(kind, len(content), 0)[:8])))
