"""Reads everything that is stored from time to time, slowly, and verifies it.

So damage in cold data is found while there still is another copy of it elsewhere. A message that
does not verify is read again the usual way, which takes it out, lists it as lost and tells; what
can be made again from memory or from a second copy is written again. Reading and checksums happen
in a thread of its own; the loop only chooses what is next.
"""

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from headwater.edge.ports.files import is_twin, remove
from headwater.edge.storage.device.background import Background
from headwater.edge.storage.directory.packers import dictionary_path, write_dictionary
from headwater.edge.storage.erase.erase_jobs import overwrite
from headwater.edge.storage.format.errors import Damaged
from headwater.edge.storage.log.log_files import LogSlot
from headwater.edge.storage.segments.file_store import FileStore
from headwater.edge.storage.segments.index_bytes import index_bytes, read_index
from headwater.edge.storage.segments.index_rows import index_of
from headwater.edge.storage.segments.removals import write_index_later
from headwater.edge.storage.segments.segment_jobs import index_path
from headwater.edge.storage.upkeep.compact import live_records
from headwater.edge.storage.upkeep.file_checks import (
    FileCheck,
    RecordsCheck,
    TwoCopyCheck,
    WholeFileCheck,
    overlaps,
)
from headwater.edge.storage.upkeep.scrub_check import RecordCheck

# Bytes of one step, at most; and steps per second, about.
STEP_MAX = 1 << 20
STEP_MIN = 64 << 10
STEPS_PER_SECOND = 16
# The first pass begins this long after the start, so that it does not slow a start down.
FIRST_SECONDS = 60.0
# Erasing overwrites in place, so that a look may meet a half of it; so many in a row do not.
LOOKS_MAX = 3
MESSAGE = 1

log = logging.getLogger("headwater.storage")

NOT_WRITTEN = "%s is damaged and cannot be written again: %s; the next pass tries that"


class Scrubber:
    """One pass after the other: `rate` is bytes per second (0: never), `pause` the seconds between
    the end of a pass and the begin of the next."""

    def __init__(self, storage: Any, rate: int, pause: float) -> None:
        self.passes = 0
        """Passes that came to their end since the start."""
        self.bytes = 0
        """Bytes read."""
        self.findings = 0
        """Places that did not verify."""
        self.repaired = 0
        """Files that were written again."""
        self.last_pass = 0.0
        """When the last pass ended, seconds since the epoch; 0 when none did."""
        self.thorough = False
        """Whether segments are written again for a damaged message alone, too."""
        self._storage = storage
        self._loop = storage.kernel.loop
        self._rate = rate
        self._pause = pause
        self._background = Background(self._loop, not is_twin(storage.directory.root))
        self._checks: Iterator[FileCheck] = iter(())
        self._current: FileCheck | None = None
        self._timer: Any = None
        self._running = False
        self._stopped = False

    def start(self) -> None:
        """Begin the first pass soon."""
        if self._rate > 0:
            self._timer = self._loop.call_later(min(self._pause, FIRST_SECONDS), self.begin_pass)

    def begin_pass(self) -> None:
        """Verify everything, unless that is being done."""
        if not self._stopped and not self._running:
            self._running = True
            self._checks = self._targets()
            self._current = None
            self._next()

    def stop(self) -> None:
        """End; waits for the step that is being done."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._background.close()

    def numbers(self) -> dict[str, float]:
        """Counters for monitoring."""
        return {
            "scrub_passes": self.passes,
            "scrub_bytes": self.bytes,
            "scrub_findings": self.findings,
            "scrub_repaired": self.repaired,
            "scrub_last_pass": self.last_pass,
        }

    # A pass.

    def _targets(self) -> Iterator[FileCheck]:
        """Everything there is, chosen when it is its turn."""
        directory = self._storage.directory
        yield TwoCopyCheck(directory.root / "HEADWATER", self._identity_found)
        yield TwoCopyCheck(directory.root / "slots", self._list_found)
        yield TwoCopyCheck(directory.root / "consumers", self._copy_found)
        yield from self._log_targets()
        for store in list(self._storage.stores()):
            if isinstance(store, FileStore) and not store.closed:
                yield from self._store_targets(store)

    def _log_targets(self) -> Iterator[FileCheck]:
        for segment in self._storage.log.live[:-1]:
            if segment.number >= self._storage.log.progress.position()["segment"]:
                # Its last batches may still be on their way to the file.
                return
            yield RecordsCheck(
                segment.slot.path,
                partial(self._log_found, segment),
                self._storage.log.seed,
                segment.number,
                segment.end,
                False,
            )

    def _store_targets(self, store: FileStore) -> Iterator[FileCheck]:
        yield TwoCopyCheck(store.directory / "meta", partial(self._meta_found, store))
        for number in self._storage.repacker.dictionaries(store):
            path = dictionary_path(store.directory, number)
            yield TwoCopyCheck(path, partial(self._dictionary_found, store, number))
        for segment in list(store.segments):
            if store.closed or segment not in store.segments:
                continue
            yield WholeFileCheck(
                index_path(segment.path),
                partial(self._index_found, store, segment),
                lambda data: read_index(store, data) is not None,
            )
            if segment.end and (segment.sealed or not store.copying):
                yield RecordsCheck(
                    segment.path,
                    partial(self._segment_found, store, segment, segment.generation),
                    store.seed,
                    segment.number,
                    segment.end,
                    True,
                )

    def _next(self) -> None:
        """Take the next step, or end the pass."""
        if self._stopped:
            return
        if self._current is None:
            self._current = next(self._checks, None)
        if self._current is None:
            self.passes += 1
            self._running = False
            self.last_pass = self._storage.directory.clock.wall_ns() / 1e9
            self._timer = self._loop.call_later(self._pause, self.begin_pass)
            return
        check = self._current
        limit = min(max(self._rate // STEPS_PER_SECOND, STEP_MIN), STEP_MAX)
        self._background.submit(lambda: check.step(limit), self._stepped)

    def _stepped(self, read: int | None, error: BaseException | None) -> None:
        """A step was done: see to what it found, and wait as the rate wants it."""
        check, count = self._current, read or 0
        if self._stopped or check is None:
            return
        self.bytes += count
        if check.done and check.findings and check.looks < LOOKS_MAX:
            check.look_again()
        elif error is not None or check.done:
            self._current = None
            self._end_check(check, error)
        self._timer = self._loop.call_later(count / max(self._rate, 1), self._next)

    def _end_check(self, check: FileCheck, error: BaseException | None) -> None:
        if isinstance(error, FileNotFoundError):
            return
        if error is not None:
            log.warning("%s cannot be verified: %s; the next pass tries again", check.path, error)
            self.findings += 1
        if check.findings or error is not None:
            check.found(check)

    # What is done about it. Files that changed meanwhile are looked at in the next pass.

    def _report(self, count: int, text: str, *values: object) -> None:
        self.findings += count
        self.repaired += 1
        log.warning(text, *values)

    def _identity_found(self, check: FileCheck) -> None:
        if self._storage.directory.write_identity():
            self._report(1, "%s: a copy was damaged; it was written again", check.path)

    def _list_found(self, check: FileCheck) -> None:
        try:
            self._storage.log.files.write_list()
        except OSError as error:
            log.warning(NOT_WRITTEN, check.path, error)
            return
        self._report(1, "%s was damaged; it was written again", check.path)

    def _copy_found(self, check: FileCheck) -> None:
        self._storage.state_copy.write_again()
        self._report(1, "%s was damaged; it is written again", check.path)

    def _meta_found(self, store: FileStore, check: FileCheck) -> None:
        try:
            if self._storage.rewrite_meta(store):
                self._report(1, "%s was damaged; it was written again", store.directory / "meta")
        except OSError as error:
            log.warning(NOT_WRITTEN, store.directory / "meta", error)

    def _dictionary_found(self, store: FileStore, number: int, check: FileCheck) -> None:
        try:
            if not store.closed and write_dictionary(store, number):
                self._report(1, "%s was damaged; it was written again", check.path)
        except OSError as error:
            log.warning(NOT_WRITTEN, check.path, error)

    def _index_found(self, store: FileStore, segment: Any, check: FileCheck) -> None:
        if store.closed or store.copying or segment not in store.segments:
            return
        path = segment.path
        if not segment.indexed:
            self._drop_index(index_path(path))
            return
        index = index_of(store, segment, self._storage.log.live[0].number)
        data = index_bytes(store, index)
        self._report(1, "%s was damaged; it is written again", index_path(path))
        storage = self._storage
        write_index_later(storage.log, storage.background, store, segment, data)

    def _drop_index(self, path: Path) -> None:
        """An index that only the next start would look at: it reads the segment instead."""
        try:
            remove(path, True)
        except OSError as error:
            log.warning("%s is damaged and cannot be removed: %s; remove it by hand", path, error)
            return
        self._report(1, "%s was damaged; it was removed, since its segment tells the same", path)

    def _log_found(self, segment: Any, check: FileCheck) -> None:
        """The log's memory has what its file should: write that. (What a start found damaged in
        the log is so in memory, too, and was told by the start.)"""
        if segment not in self._storage.log.live:
            return
        slot, parts = segment.slot, []
        for found in check.findings:
            data = segment.bytes_at(found.start, min(found.end, segment.end) - found.start)
            records = RecordCheck(self._storage.log.seed, segment.number)
            records.part(data, found.start, True)
            if not records.found():
                parts.append((found.start, data))
        if parts:
            text = "%s: %d places do not verify; they are written again from memory"
            self._report(len(parts), text, slot.path, len(parts))
            self._write_again(slot, parts)

    def _write_again(self, slot: LogSlot, parts: list[tuple[int, bytes]]) -> None:
        """Have parts of a log slot written, which is not used again before that is done."""
        files = self._storage.log.files

        def write() -> None:
            for at, data in parts:
                overwrite(slot.path, at, data)

        def written(result: object, error: BaseException | None) -> None:
            files.unpin(slot)
            if error is not None:
                log.warning(NOT_WRITTEN, slot.path, error)

        files.pin(slot)
        self._storage.background.submit(write, written)

    def _segment_found(
        self, store: FileStore, segment: Any, generation: int, check: FileCheck
    ) -> None:
        """Read the messages that stand there as everybody does; have the segment written again
        when other records of it are damaged, or a thorough scrubber found it."""
        if store.closed or segment not in store.segments or segment.generation != generation:
            return
        fresh = [found for found in check.findings if found.sequence not in store.lost]
        lost = 0
        for sequence in overlaps(fresh, live_records(store, segment)):
            lost += self._read(store, sequence)
        others = [found for found in fresh if found.kind != MESSAGE]
        self.findings += lost
        if self.thorough:
            others, lost = check.findings, 0
        if others and not lost and not store.copying and not segment.busy:
            self._report(
                len(others),
                "%s: %d places do not verify; the segment is written again without them",
                segment.path,
                len(others),
            )
            segment.sealed = segment.busy = True
            store.on_compact(store, segment)

    def _read(self, store: FileStore, sequence: int) -> int:
        """Read a message from its file; 1 when it is damaged, which is told then."""
        # Twice: the first call only learns that the read buffer was used.
        store.window.drop_unused()
        store.window.drop_unused()
        try:
            store.get(sequence)
        except Damaged:
            return 1
        return 0
