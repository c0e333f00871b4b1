"""What a stream is: its identity and the stream layer's part, as its `meta` file has them.

Each is there twice: as a state of the commit log, so making or changing a stream costs what a
record costs, and in a file, which the background writes, many at a time. Then the log says that
the file is there, so a start knows damage when it is not. Each has a generation, that of the
two-slot file: the greater one counts, wherever it is.
"""

import json
import logging
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.edge.ports import files
from headwater.edge.ports.files import sync_directory
from headwater.edge.storage.device.background import Background
from headwater.edge.storage.device.durable_file import TwoCopyFile, two_copies
from headwater.edge.storage.device.file_calls import start_writing
from headwater.edge.storage.directory.directory import StoreDirectory
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.format.problem import Problem, ProblemKind

# Owner of the states; their keys are incarnations.
METAS_OWNER = b"\0metas"
GENERATION = struct.Struct("<Q")
FILE = "meta"
UNFINISHED = "meta.new"
# How long the files of new streams may wait for company.
REST_SECONDS = 1.0
RETRY_SECONDS = 1.0
# Added to a state whose file is written. Nothing is synced for that alone.
FILED = b"f"
FILED_NS = 60_000_000_000
# Files that are written and synced together.
TOGETHER_MAX = 64

log = logging.getLogger("headwater.storage")


@dataclass(eq=False)
class Pending:
    """A meta that the log has, and its file may not have."""

    path: Path
    """The stream's directory; it need not be there."""
    generation: int
    content: bytes
    filed: bool = False
    """Its file was written once."""
    dropped: bool = False
    """Something newer took its place, or the stream is gone: it must not get its name."""


def encode_meta(identity: dict[str, object], meta: bytes) -> bytes:
    """Content of a meta file: a line of JSON that is storage's own, and what the caller stores."""
    return json.dumps(identity).encode() + b"\n" + meta


def decode_meta(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Identity and meta. Raises ValueError."""
    head, _, meta = content.partition(b"\n")
    return json.loads(head), meta


def owner_of(content: bytes | None) -> str:
    """The incarnation that a meta names; "" when it names none."""
    try:
        return str(decode_meta(content or b"")[0].get("incarnation", ""))
    except (ValueError, AttributeError):
        return ""


class Metas:
    """Metas of a node's streams, pending ones by incarnation: as many as streams that were made or
    changed and whose files could not be written yet."""

    def __init__(self, directory: StoreDirectory) -> None:
        self._streams = directory.streams
        self._log: Any = None
        self._background: Background | None = None
        self._pending: dict[str, Pending] = {}
        self._unasked: list[Pending] = []
        """Those that the background is not asked to write yet."""
        self._written: list[str] = []
        self._generations: dict[str, int] = {}
        """Of the newest meta of each stream, by incarnation."""
        self._unsaid: dict[str, tuple[int, bytes] | None] = {}
        """What the log is to be told when it takes records; None: the stream is gone."""
        self._lock = threading.Lock()
        self._timed = self._failed = False
        self.stopped = False
        """Set to have no files written."""

    # At a start.

    def load(self, commit_log: Any, found: dict[bytes, tuple[bytes, bool]], whole: bool) -> None:
        """Take what the log has, (value, whether its file was written) by incarnation, and use
        that log from now on. Unless it is `whole`, it may have lost that a stream was removed: one
        that should have a directory and has none is left out."""
        self._log = commit_log
        for key, (value, filed) in found.items():
            (generation,) = GENERATION.unpack_from(value)
            path = self._streams / key.decode()
            if whole or not filed or path.exists():
                self._add(Pending(path, generation, value[GENERATION.size :], filed))
            else:
                self._unsaid[path.name] = None

    def _add(self, row: Pending) -> None:
        self._pending[row.path.name] = row
        self._unasked.append(row)
        self._generations[row.path.name] = row.generation

    def contents(self) -> list[bytes]:
        """What the log has of sealed streams that is newer than files. Raises OSError."""
        return [
            row.content
            for row in self._pending.values()
            if b'"keys"' in row.content and generation_of(row.path) < row.generation
        ]

    def paths(self) -> list[Path]:
        """Directories of all streams, those included that are not made yet."""
        rows = {row.path for row in self._pending.values()}
        return sorted({*self._streams.iterdir(), *rows})

    def found(self, path: Path, problems: list[Problem]) -> tuple[dict[str, Any], bytes] | None:
        """Identity and meta of the stream in a directory; None when nothing is valid. A single bad
        copy of the file is written again. Raises OSError."""
        file = TwoCopyFile(path / FILE)
        content = file.read()
        foreign = owner_of(content) not in ("", path.name)
        if foreign:
            self._put_right(problems)
            content = file.read()
            foreign = owner_of(content) != path.name
            if foreign:
                problems.append(
                    Problem.of(ProblemKind.DAMAGED, file.path, " is that of another stream")
                )
                content = None
        row = self._pending.get(path.name)
        if content is not None and (row is None or file.generation >= row.generation):
            self._accept_file(path.name, file, content, problems)
        elif row is not None:
            if row.filed and not foreign:
                text = f" {wrong_with(file, content)}; the log has it"
                problems.append(Problem.of(ProblemKind.REPAIRED, file.path, text))
            content = row.content
        try:
            identity, meta = decode_meta(content or b"")
        except ValueError:
            return None
        known = {"id", "incarnation", "account", "name"} <= set(identity)
        return (identity, meta) if known else None

    def _accept_file(
        self, incarnation: str, file: TwoCopyFile, content: bytes, problems: list[Problem]
    ) -> None:
        """A stream's file counts: the log is to have the same. Raises OSError."""
        row = self._pending.get(incarnation)
        if row is not None and not row.filed and file.generation == row.generation:
            # Who wrote it may have been killed before it was durable: it is written again.
            return
        self._mark_dropped(row)
        if file.damaged:
            text = ": a copy was damaged; it was written again"
            problems.append(Problem.of(ProblemKind.REPAIRED, file.path, text))
            file.write(content)
        self._drop(incarnation, row is not None and not row.filed)
        if row is None or file.generation > row.generation:
            self._say(incarnation, file.generation, content)

    def _put_right(self, problems: list[Problem]) -> None:
        """Files were moved about: give streams back the metas that lie in other directories.
        Raises OSError."""
        rows: dict[str, tuple[int, bytes]] = {}
        owners: dict[str, str] = {}
        for path in self._streams.iterdir():
            file = TwoCopyFile(path / FILE)
            content = file.read()
            owners[path.name] = owner_of(content)
            if content is not None and owners[path.name] not in ("", path.name):
                rows[owners[path.name]] = (file.generation, content)
        for name, (generation, content) in rows.items():
            if owners.get(name, name) != name:
                file = TwoCopyFile(self._streams / name / FILE)
                file.generation = generation - 1
                file.write(content)
                text = " was that of another stream; its own was elsewhere"
                problems.append(Problem.of(ProblemKind.REPAIRED, file.path, text))

    def start(self, background: Background) -> None:
        """The log takes records: tell it what it does not have, and write files."""
        self._background = background
        self._log.table.filed[METAS_OWNER] = FILED
        unsaid, self._unsaid = self._unsaid, {}
        for name, said in unsaid.items():
            if said is not None:
                self._say(name, *said)
                continue
            try:
                self.forget(name)
            except StoreError as error:
                log.warning(
                    "the meta of the removed stream %s cannot be taken out of the log (%s): the "
                    "next start does that",
                    name,
                    error,
                )
        self._log_filed()
        self._later(REST_SECONDS)

    def write_logged(self, path: Path) -> None:
        """A stream's directory is to be put aside: let it have what the log knows, which forgets
        it. Raises OSError."""
        row = self._pending.get(path.name)
        if row is not None:
            self.write(path, row.content)
        self.forget(path.name)

    # Changes.

    def put(self, incarnation: str, content: bytes, new: bool = False) -> int:
        """Give a stream, which may be `new`, this meta; returns the lsn with which it is durable.
        Raises StoreError, and then nothing has changed."""
        row = self._pending.get(incarnation)
        path = self._streams / incarnation
        known = 0 if new else self._generations.get(incarnation, 0)
        value = GENERATION.pack(known + 1) + content
        lsn = self._log.put_state(METAS_OWNER, incarnation.encode(), value)
        self._mark_dropped(row)
        self._add(Pending(path, known + 1, content))
        self._later(REST_SECONDS)
        return int(lsn)

    def write(self, path: Path, content: bytes) -> None:
        """The same, in the file, durable when this returns. Raises OSError, and then nothing has
        changed."""
        file = TwoCopyFile(path / FILE)
        row = self._pending.get(path.name)
        with self._lock:
            if row is not None:
                files.new_directory(path, True)
                sync_directory(self._streams)
            file.read()
            file.generation = max(file.generation, self._generations.get(path.name, 0))
            file.write(content)
            if row is not None:
                row.dropped = True
        self._drop(path.name, False)
        self._say(path.name, file.generation, content)

    def _say(self, incarnation: str, generation: int, content: bytes) -> None:
        """Have the log say what a file says."""
        self._generations[incarnation] = generation
        if self._background is None:
            self._unsaid[incarnation] = (generation, content)
            return
        key = incarnation.encode()
        try:
            self._log.put_state(METAS_OWNER, key, GENERATION.pack(generation) + content)
            self._log.add_delta(METAS_OWNER, key, FILED, FILED_NS)
        except StoreError as error:
            log.warning(
                "the meta of stream %s cannot be written to the log (%s): its file alone has it",
                incarnation,
                error,
            )

    @property
    def idle(self) -> bool:
        """Whether every stream's file has its newest meta."""
        return not self._pending

    def is_pending(self, path: Path) -> bool:
        """Whether the file of the stream in a directory is older than what the log has."""
        return path.name in self._pending

    def is_whole(self, path: Path) -> bool:
        """Whether a stream's file needs no repair."""
        file = TwoCopyFile(path / FILE)
        return self.is_pending(path) or (file.read() is not None and not file.damaged)

    def forget(self, incarnation: str) -> None:
        """A stream is gone. Raises StoreError, and then nothing has changed."""
        if self._background is None:
            self._unsaid[incarnation] = None
        else:
            self._log.delete_state(METAS_OWNER, incarnation.encode(), FILED_NS)
        self._mark_dropped(self._pending.get(incarnation))
        self._drop(incarnation, False)
        self._generations.pop(incarnation, None)

    def _mark_dropped(self, row: Pending | None) -> None:
        if row is not None:
            with self._lock:
                row.dropped = True

    def _drop(self, incarnation: str, filed: bool) -> None:
        """Nothing of a stream is pending. `filed`: the log is to be told that."""
        if self._pending.pop(incarnation, None) is not None and filed:
            self._written.append(incarnation)

    # Files.

    def flush(self) -> None:
        """Have what is pending now written to its files, before anything else that the background
        is asked for from now on."""
        if self._background is None or self.stopped or not self._unasked:
            return
        rows, self._unasked = self._unasked, []
        self._background.submit(
            lambda: self._write_files(rows), lambda _, error: self._flushed(rows, error)
        )

    async def flush_all(self, pause: Any) -> None:
        """Return when everything is in files, or cannot be written now. `pause` is awaited in
        between."""
        self._failed = False
        while self._pending and not self._failed:
            self.flush()
            await pause()

    def _later(self, seconds: float) -> None:
        if not self._timed and self._background is not None:
            self._timed = True
            self._log.kernel.loop.call_later(seconds, self._on_time)

    def _on_time(self) -> None:
        self._timed = False
        if not self._log.closed:
            self.flush()

    def _flushed(self, rows: list[Pending], error: BaseException | None) -> None:
        failed, self._failed = self._failed, error is not None
        if error is not None:
            self._unasked += [row for row in rows if not row.dropped]
        for row in rows if error is None else []:
            if self._pending.get(row.path.name) is row:
                self._drop(row.path.name, not row.filed)
        self._log_filed()
        if error is not None and not self._log.closed:
            if not failed:
                log.warning(
                    "meta files cannot be written: %s; the log has what is in them, and it is "
                    "tried again",
                    error,
                )
            self._later(RETRY_SECONDS)

    def _log_filed(self) -> None:
        if self._log.closed:
            return
        names, self._written = self._written, []
        for name in names:
            if name in self._pending or name not in self._generations:
                continue
            try:
                self._log.add_delta(METAS_OWNER, name.encode(), FILED, FILED_NS)
            except StoreError:
                # Damage of the file is not told then, and does no harm either.
                log.debug("the log does not know that the meta of %s is in its file", name)

    def _write_files(self, rows: list[Pending]) -> None:
        for begin in range(0, len(rows), TOGETHER_MAX):
            some = rows[begin : begin + TOGETHER_MAX]
            try:
                self._write_some([row for row in some if not row.dropped])
            except OSError:
                self._write_each(some)

    def _write_some(self, rows: list[Pending]) -> None:
        """The device has all contents before the first is waited for."""
        opened: list[int] = []
        try:
            for row in rows:
                files.new_directory(row.path, True)
                opened.append(files.open_file(row.path / UNFINISHED, files.REPLACE))
                files.write_all(opened[-1], two_copies(row.generation, row.content), 0)
                start_writing(opened[-1])
            for fd in opened:
                files.sync(fd)
        finally:
            for fd in opened:
                files.close(fd)
        for row in rows:
            with self._lock:
                if not row.dropped:
                    files.rename(row.path / UNFINISHED, row.path / FILE)
        for row in rows:
            sync_directory(row.path)
        sync_directory(self._streams)

    def _write_each(self, rows: list[Pending]) -> None:
        """One by one, in place where there is no room for a second file. A directory that was made
        is there for good even where its file fails: segments may follow. Raises OSError."""
        try:
            for row in rows:
                with suppress(OSError):
                    files.remove(row.path / UNFINISHED, True)
                with self._lock:
                    if row.dropped:
                        continue
                    files.new_directory(row.path, True)
                    file = TwoCopyFile(row.path / FILE)
                    file.generation = row.generation - 1
                    file.write(row.content)
        finally:
            sync_directory(self._streams)


def generation_of(path: Path) -> int:
    """That of a stream's meta file; 0 when there is none."""
    file = TwoCopyFile(path / FILE)
    file.read()
    return file.generation


def wrong_with(file: TwoCopyFile, content: bytes | None) -> str:
    """For people: why a file that was read does not count."""
    if content is not None:
        return "is older than it was"
    return "is damaged in both copies" if file.damaged else "is missing"
