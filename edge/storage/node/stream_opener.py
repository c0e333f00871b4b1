"""Opens directories of file-backed streams: all at a start, one when it comes back from quarantine.

A directory that cannot be opened takes nothing else down: it is moved to quarantine, and that is
listed as a problem.
"""

import json
import logging
from collections.abc import Callable
from pathlib import Path

from headwater.edge.ports.files import remove, remove_tree
from headwater.edge.storage.directory.directory import StoreDirectory
from headwater.edge.storage.directory.metas import Metas, encode_meta
from headwater.edge.storage.directory.packers import META_PURPOSE, Packers, sealed_meta
from headwater.edge.storage.erase.erase_jobs import decode_locations, redo_in_segments
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.format.problem import Problem, ProblemKind
from headwater.edge.storage.log.commit_log import CommitLog
from headwater.edge.storage.packing.packing import Packer
from headwater.edge.storage.recovery.log_recovery import LogRecovery
from headwater.edge.storage.recovery.stream_recovery import (
    RecoveredStream,
    StreamRecovery,
    remove_gone,
)
from headwater.edge.storage.segments.file_store import FileStore
from headwater.edge.storage.segments.manifest import decode_manifest

log = logging.getLogger("headwater.storage")


class StreamOpener:
    """Makes stores by `make(packer, incarnation, path, meta)`; `drop` takes back what was made."""

    def __init__(
        self,
        commit_log: CommitLog,
        directory: StoreDirectory,
        metas: Metas,
        packers: Packers,
        make: Callable[[Packer, str, Path, bytes], FileStore],
        drop: Callable[[FileStore], None],
    ) -> None:
        self._log = commit_log
        self._directory = directory
        self._metas = metas
        self._packers = packers
        self._make = make
        self._drop = drop
        self.erases_left: list[tuple[int, int, bytes]] = []
        """See `LogRecovery.erases_left`: what is to be overwritten before a segment is read."""
        self._manifests: dict[bytes, bytes] = {}
        """What the log has of the streams' segments, by incarnation."""
        self._log_is_whole = False
        self._numbers: dict[str, float] = {}
        self._progress: Callable[[int, int], None] = lambda done, total: None
        self._left = 0
        """Segments that are not read yet."""

    def begin(
        self,
        recovery: LogRecovery,
        numbers: dict[str, float],
        progress: Callable[[int, int], None],
    ) -> None:
        """The log was looked at. `numbers` gets what the start reads; `progress(done, total)` is
        called with counts of segments."""
        self._manifests = recovery.manifests
        self._log_is_whole = not recovery.problems
        self.erases_left = recovery.erases_left()
        self._numbers, self._progress = numbers, progress

    def open_all(self, problems: list[Problem]) -> list[RecoveredStream]:
        """Every stream that can be opened; what is wrong is added to `problems`."""
        found = []
        paths = self._metas.paths()
        self._left = sum(len(list(path.glob("*.seg"))) for path in paths)
        self._numbers["recovery_segments"] = self._left
        for path in paths:
            try:
                stream = self.open(path, problems)
            except Exception as error:
                log.exception(
                    "stream directory %s cannot be opened; it goes to quarantine, and nothing of "
                    "it is lost; report this fault",
                    path,
                )
                stream = None
                text = f": {error!r}; the stream is in quarantine"
                problems.append(Problem.of(ProblemKind.UNSERVED, path, text))
                self._metas.write_logged(path)
                self._directory.put_aside(path, f"it could not be opened: {error!r}")
            if stream is not None:
                found.append(stream)
        return found

    def open(self, path: Path, problems: list[Problem]) -> RecoveredStream | None:
        """The stream in a directory, its segments read; None when there is none to open. Raises
        StoreError, OSError."""
        found = self._metas.found(path, problems)
        manifest = self._manifests.get(path.name.encode())
        if found is None:
            self._without_meta(path, manifest is not None, problems)
            return None
        identity, stored = found
        before = json.dumps(identity)
        packer = self._packers.open(identity, True)
        meta = packer.open_blob(stored, META_PURPOSE)
        if meta is None:
            raise StoreError(
                f"{path / 'meta'}: the sealed part does not open with the configured keys"
            )
        self._packers.load_dictionaries(path, identity, packer, problems)
        if json.dumps(identity) != before:
            self._metas.write(path, encode_meta(identity, sealed_meta(packer, meta)))
        for leftover in [*path.glob("*.new"), *path.glob("*.tmp")]:
            remove(leftover)
        store = self._make(packer, identity["incarnation"], path, meta)
        stream = RecoveredStream(store, identity["account"], identity["name"], meta, identity)
        self._erase_again(store)
        known = decode_manifest(manifest) if manifest is not None else None
        if known is not None:
            store.first_log_segment = known.first_log_segment
            remove_gone(store, known)
        stream.recovery = StreamRecovery(store, stream.problems, known, self._log_is_whole)
        stream.recovery.on_segment = self._segment_read
        stream.recovery.on_foreign = self._directory.put_foreign_aside
        try:
            stream.recovery.run(self._log.files.scarce)
        except BaseException:
            self._drop(store)
            raise
        return stream

    def _without_meta(self, path: Path, known: bool, problems: list[Problem]) -> None:
        """Nothing says what a directory is: move it to quarantine, unless there is nothing in it
        and nobody knows of it. Raises OSError."""
        self._metas.forget(path.name)
        there = (path / "meta").exists()
        if not any(path.glob("*.seg")) and not there and not known:
            remove_tree(path)
            return
        reason = "is damaged in both copies" if there else "is missing"
        kept = self._directory.put_aside(path, f"its meta file {reason}")
        text = f": the stream's meta file {reason}; the directory was moved to {kept}"
        problems.append(Problem.of(ProblemKind.UNSERVED, path, text))

    def _segment_read(self, scanned: int) -> None:
        """A segment was entered; `scanned` bytes of it had no index."""
        total = int(self._numbers.get("recovery_segments", 0))
        self._left = max(self._left - 1, 0)
        before = self._numbers.get("recovery_scanned_bytes", 0)
        self._numbers["recovery_scanned_bytes"] = before + scanned
        self._progress(total - self._left, total)

    def _erase_again(self, store: FileStore) -> None:
        """Finish overwriting messages in a stream's segments before they are read."""
        rows = [
            (stream, location)
            for _, stream, body in self.erases_left
            if stream == store.stream_id
            for location in decode_locations(body)
        ]
        redo_in_segments(store.directory, rows, self._log.seed)
