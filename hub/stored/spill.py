"""Entries that a member still needs and memory holds no more, in files of the node.

They are a copy: nobody's ack waits for them, they are not synced, and a start removes them. What
cannot be written or read, or is too much, is let go of. A member that needed it gets the state.

    jetstream/raft/old/<group>.<number>   chunks end to end: runs of entries of one term as in
    `hub.raft.codec`, sealed as entries of the log are; only memory knows where each is, and its
    checksum
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

from headwater.edge.ports import files
from headwater.edge.storage.device.background import Background
from headwater.edge.storage.format.crc import checksum
from headwater.edge.storage.log.states import StateTable
from headwater.hub.raft.codec import decode_entries, encode_entries
from headwater.hub.raft.model.entry import Entry, fitting
from headwater.hub.raft.model.errors import invariant
from headwater.hub.stored.group_log import OWNER

CHUNK_BYTES = 1 << 20
"""Of entries that are read at a time, about; a single greater entry is a chunk of its own."""
FILE_BYTES = 16 << 20
"""Of a file, about; it is removed when every member has what is in it."""
FREE_BYTES = 256 << 20
"""That the device keeps free of such files."""
REST_SECONDS = 10.0
"""After a write that failed."""

log = logging.getLogger("headwater.raft")


class Chunk:
    """Where entries `first` to `last`, all of one term, are in a file."""

    __slots__ = ("crc", "first", "last", "offset", "path", "size", "term")

    def __init__(self, path: Path, offset: int, stored: bytes, entries: list[Entry]) -> None:
        self.path = path
        self.offset = offset
        self.size = len(stored)
        self.crc = int(checksum(stored))
        self.term, self.first = entries[0].term, entries[0].index
        self.last = entries[-1].index


class Spill:
    """Of one group: the entries behind `before`, without a hole. Made by `Spills`; as of
    `hub.raft.log.OldEntries`."""

    def __init__(self, spills: "Spills", group: int, before: int, term: int) -> None:
        self.before = before
        self._before_term = term
        self.spills = spills
        self.group = group
        self.size = 0
        """Bytes in files."""
        self.busy = False
        """Something is being written."""
        self.closed = False
        """It has nothing any more."""
        self._chunks: list[Chunk] = []
        self._lasts: list[int] = []
        """`last` of each chunk, for searches."""
        self._path: Path | None = None
        self._offset = 0
        self._files = 0

    @property
    def last(self) -> int:
        """Index of the newest entry."""
        return self._lasts[-1] if self._lasts else self.before

    def _find(self, index: int) -> Chunk | None:
        at = bisect_left(self._lasts, index)
        if index <= self.before or at == len(self._lasts):
            return None
        return self._chunks[at]

    def term(self, index: int) -> int | None:
        """As of `OldEntries`."""
        if self.closed:
            return None
        chunk = self._find(index)
        if chunk is not None:
            return chunk.term
        return self._before_term if index == self.before else None

    def slice(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        """As of `OldEntries`."""
        chunk = None if self.closed else self._find(first)
        if chunk is None:
            return []
        entries = self._read(chunk)
        if not entries:
            self.close()
        return fitting(entries[first - chunk.first : last + 1 - chunk.first], bytes_max)

    def _read(self, chunk: Chunk) -> list[Entry]:
        """The entries of a chunk; none when they cannot be had."""
        try:
            fd = files.open_file(chunk.path, files.READ_ONLY)
            try:
                stored = files.read_at(fd, chunk.size, chunk.offset)
            finally:
                files.close(fd)
            if len(stored) != chunk.size or int(checksum(stored)) != chunk.crc:
                raise ValueError("it is not what was written")
            opened = self.spills.table.opened(OWNER, b"%d" % self.group, stored)
            return decode_entries(opened or b"")
        except (OSError, ValueError) as error:
            log.warning(
                "old entries of group %d cannot be read from %s (%s): who needs them gets the "
                "state; look at this node's disk",
                self.group,
                chunk.path,
                error,
            )
            return []

    def add(self, entries: list[Entry], done: Callable[[], None]) -> None:
        """Write entries that follow the last one beside the loop; `done` is called when they can be
        read, or when that failed and the spill is closed."""
        invariant(entries[0].index == self.last + 1, "a hole in what is kept of old entries")
        if self._path is None or self._offset >= self.spills.file_bytes:
            self._files += 1
            self._path, self._offset = self.spills.folder / f"{self.group}.{self._files}", 0
        path, begin = self._path, self._offset
        chunks, pieces = [], []
        for run in runs(entries, self.spills.chunk_bytes):
            stored = self.spills.table.sealed(OWNER, b"%d" % self.group, encode_entries(run))
            chunks.append(Chunk(path, self._offset, stored, run))
            pieces.append(stored)
            self._offset += len(stored)
        self.busy = True
        self._resize(self._offset - begin)

        def finish(result: object, error: BaseException | None) -> None:
            self.busy = False
            if error is not None and not self.closed:
                log.warning(
                    "old entries of group %d cannot be kept in %s (%s): a member that needs them "
                    "gets the state; look at this node's disk",
                    self.group,
                    path,
                    error,
                )
                self.spills.rest()
                self.close()
            if not self.closed:
                self._chunks += chunks
                self._lasts += [chunk.last for chunk in chunks]
            done()

        self.spills.background.submit(lambda: self.spills.write(path, begin, pieces), finish)

    def forget(self, index: int) -> None:
        """Every member has what is up to `index`: remove files that hold nothing else."""
        while self._chunks and self._chunks[0].path != self._path:
            path = self._chunks[0].path
            own = [chunk for chunk in self._chunks if chunk.path == path]
            if own[-1].last > index:
                return
            self.before, self._before_term = own[-1].last, own[-1].term
            del self._chunks[: len(own)], self._lasts[: len(own)]
            self._resize(-sum(chunk.size for chunk in own))
            self.spills.remove([path])

    def close(self) -> None:
        """Let go of everything."""
        if self.closed:
            return
        self.closed = True
        paths = {chunk.path for chunk in self._chunks} | ({self._path} if self._path else set())
        self.spills.remove(sorted(paths))
        self._chunks.clear()
        self._lasts.clear()
        self._resize(-self.size)

    def _resize(self, by: int) -> None:
        self.size += by
        self.spills.size += by


class Spills:
    """Those of all groups of a node, in one folder."""

    def __init__(
        self,
        folder: Path,
        background: Background,
        table: StateTable,
        now: Callable[[], float],
    ) -> None:
        """Remove what an earlier start left. `now`: the loop's time. Raises OSError."""
        self.folder = folder
        self.background = background
        self.table = table
        """It seals entries."""
        self.size = 0
        """Bytes in files."""
        self.chunk_bytes = CHUNK_BYTES
        self.file_bytes = FILE_BYTES
        self.spare = FREE_BYTES
        self._now = now
        self._rests_until = 0.0
        if folder.is_dir():
            files.remove_tree(folder)

    def room(self) -> bool:
        """Whether the device has room for more, and has not just refused some."""
        if self._now() < self._rests_until:
            return False
        try:
            return files.free_bytes(self.folder.parent) > self.spare
        except OSError:
            return False

    def rest(self) -> None:
        """A write failed: try no other one for a while."""
        self._rests_until = self._now() + REST_SECONDS

    def write(self, path: Path, offset: int, pieces: list[bytes]) -> None:
        """Write pieces of a file end to end. Raises OSError. Beside the loop."""
        if not self.folder.is_dir():
            files.new_directory(self.folder, True)
        fd = files.open_file(path, files.WRITE)
        try:
            for piece in pieces:
                files.write_all(fd, piece, offset)
                offset += len(piece)
        finally:
            files.close(fd)

    def remove(self, paths: list[Path]) -> None:
        """Remove files, when what is being written to them has ended."""

        def work() -> None:
            for path in paths:
                files.remove(path, True)

        self.background.submit(work)


def runs(entries: list[Entry], bytes_max: int) -> Iterator[list[Entry]]:
    """Pieces of a row of entries, each of one term and of a bounded size."""
    for _, same in groupby(entries, lambda entry: entry.term):
        rest = list(same)
        while rest:
            run = fitting(rest, bytes_max)
            yield run
            rest = rest[len(run) :]
