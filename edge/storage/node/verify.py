"""Verifies a stopped store without changing it: what would a start find, and is every byte sound?

The store is opened as a node opens it, but on a shadow of its directory, so that recovery's own
rules decide what counts; then the checksums of every file are gone through.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headwater.edge.kernel.kernel import Kernel
from headwater.edge.ports.twins.shadow import shadow_of
from headwater.edge.storage.directory.store_lock import StoreLock
from headwater.edge.storage.directory.store_options import StoreOptions
from headwater.edge.storage.format.errors import Damaged, FormatError, KeyMissing, StoreError
from headwater.edge.storage.format.problem import Problem, ProblemKind
from headwater.edge.storage.node.node_store import NodeStore
from headwater.edge.storage.recovery.stream_recovery import RecoveredStream
from headwater.edge.storage.segments.index_bytes import read_index
from headwater.edge.storage.segments.manifest import runs_text
from headwater.edge.storage.segments.segment_jobs import index_path
from headwater.edge.storage.upkeep.compact import live_records
from headwater.edge.storage.upkeep.file_checks import (
    FileCheck,
    RecordsCheck,
    TwoCopyCheck,
    WholeFileCheck,
    overlaps,
)

STEP_BYTES = 4 << 20
MESSAGE = 1
# Messages that are read between two looks at the event loop.
READ_SLICE = 2000

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""


@dataclass
class StreamReport:
    """One stream as it was found."""

    account: str
    stream: str
    messages: int = 0
    bytes: int = 0
    """As the stream's limits count them."""
    first_seq: int = 0
    last_seq: int = 0
    lost: int = 0
    """Messages that are damaged or gone."""
    lost_sequences: str = ""
    """The first runs of them, for people."""
    damaged: list[Problem] = field(default_factory=list)
    """What is wrong with files of the stream."""
    damaged_segments: list[str] = field(default_factory=list)
    """Segments with damaged records, below `<store_dir>/jetstream`."""

    def add(self, kind: ProblemKind, path: Path, text: str) -> None:
        """List what is wrong with a file; `text` follows upon its path."""
        self.damaged.append(Problem.of(kind, path, text, f"{self.account} > {self.stream}"))


@dataclass
class Report:
    """What `verify` found."""

    streams: list[StreamReport] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    """What a start would tell, and damaged files that belong to no stream."""
    bytes: int = 0
    """Bytes of files that were verified."""
    quarantined: int = 0
    clean: bool = True
    """Whether the node was stopped cleanly; a store after a crash is sound, too."""

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged, lost or out of place."""
        streams = any(row.lost or row.damaged for row in self.streams)
        return not (streams or self.problems)


async def verify(options: StoreOptions, progress: Progress, deep: bool = False) -> Report:
    """Verify the store of `options.directory`; `deep`: read every message the usual way as well,
    so that sealed and compressed ones are opened. Raises StoreError, StoreLocked, OSError."""
    base = Path(options.directory)
    report = Report()
    with StoreLock(base) as lock:
        shadow = shadow_of(lock.root).parent
        quiet = replace(options, directory=shadow, scrub_rate=0)  # type: ignore[arg-type]
        storage = NodeStore(Kernel(asyncio.get_running_loop()), quiet)
        try:
            found = storage.open()
        except KeyMissing:
            raise
        except (FormatError, StoreError) as error:
            report.problems.append(Problem(ProblemKind.FAILED, str(error)))
            return report
        try:
            await _Examination(base, storage, report, progress, deep).run(found)
        finally:
            storage.stop_now()
    return report


class _Examination:
    """Goes through the files of one opened store."""

    def __init__(
        self, base: Path, storage: NodeStore, report: Report, progress: Progress, deep: bool
    ) -> None:
        self.base = base
        self.storage = storage
        self.report = report
        self.progress = progress
        self.deep = deep
        self.total = 0

    async def run(self, found: list[RecoveredStream]) -> None:
        root = self.base / "jetstream"
        report, storage = self.report, self.storage
        # What the shadow would move on its own is not on the disk.
        storage.checkpointer.stopped = storage.compactor.stopped = storage.repacker.stopped = True
        storage.metas.stopped = storage.state_copy.stopped = True
        report.clean = storage.clean_start
        report.quarantined = storage.quarantined
        report.problems += storage.problems
        self.total = sum(
            item.stat().st_size
            for part in (root / "streams", root / "log")
            for item in part.rglob("*")
            if item.is_file()
        )
        for check in self._node_checks(root):
            if await self._check(check):
                text = " is damaged; repair writes it again"
                problem = Problem.of(ProblemKind.DAMAGED, check.path, text)
                report.problems.append(problem.found(storage.directory.clock.wall_ns()))
        for stream in found:
            report.streams.append(await self._stream(stream))
        self.progress(self.total, self.total)

    def real(self, path: Any) -> Path:
        """The file that a shadow's path stands for."""
        return self.base.joinpath(*path.parts)

    def _node_checks(self, root: Path) -> Iterator[FileCheck]:
        for name in ("HEADWATER", "slots", "clean", "consumers"):
            if (root / name).exists():
                yield TwoCopyCheck(root / name, _nothing)
        seed = self.storage.log.seed
        for segment in self.storage.log.live:
            path = self.real(segment.slot.path)
            if path.exists() and segment is not self.storage.log.live[-1]:
                yield RecordsCheck(path, _nothing, seed, segment.number, segment.end, False)

    async def _check(self, check: FileCheck) -> bool:
        """Verify one file; whether something is wrong with it."""
        while not check.done:
            try:
                self.report.bytes += check.step(STEP_BYTES)
            except OSError:
                return True
            self.progress(min(self.report.bytes, self.total), self.total)
            await asyncio.sleep(0)
        return bool(check.findings)

    async def _stream(self, found: RecoveredStream) -> StreamReport:
        store = found.store
        row = StreamReport(found.account, found.name)
        meta = self.real(store.directory / "meta")
        unmade = not meta.exists() and self.storage.metas.is_pending(store.directory)
        if not unmade and await self._check(TwoCopyCheck(meta, _nothing)):
            row.add(ProblemKind.REPAIRED, meta, ": a copy is damaged; a start writes it again")
        for path in sorted(self.real(store.directory).glob("*.dict")):
            if await self._check(TwoCopyCheck(path, _nothing)):
                row.add(ProblemKind.REPAIRED, path, ": a copy is damaged; a start writes it again")
        for segment in list(store.segments):
            await self._segment(store, segment, row)
        if self.deep:
            await self._read_all(store)
        now = self.storage.directory.clock.wall_ns()
        row.damaged = [problem.found(now) for problem in row.damaged]
        row.messages, row.bytes = store.messages, store.bytes
        row.first_seq, row.last_seq = store.first_seq, store.last_seq
        row.lost = len(store.lost)
        row.lost_sequences = runs_text(list(store.lost)) if store.lost else ""
        return row

    async def _segment(self, store: Any, segment: Any, row: StreamReport) -> None:
        path = self.real(segment.path)
        index = index_path(path)
        if index.exists():
            check = WholeFileCheck(
                index, _nothing, lambda data: read_index(store, data) is not None
            )
            if await self._check(check):
                text = " is damaged; a start reads its segment instead, which has everything"
                row.add(ProblemKind.REPAIRED, index, text)
        if not segment.end or not path.exists():
            return
        records = RecordsCheck(path, _nothing, store.seed, segment.number, segment.end, True)
        if not await self._check(records):
            return
        for sequence in overlaps(records.findings, live_records(store, segment)):
            _read(store, sequence)
        damaged = len(records.findings)
        text = f": {damaged} places do not verify; all messages beside them are sound"
        row.add(ProblemKind.DAMAGED, path, text)
        row.damaged_segments.append(str(path.relative_to(self.base / "jetstream")))

    async def _read_all(self, store: Any) -> None:
        everything = store.filter(())
        at = store.next_matching(everything, 0)
        count = 0
        while at:
            _read(store, at)
            at = store.next_matching(everything, at + 1)
            count += 1
            if count % READ_SLICE == 0:
                await asyncio.sleep(0)


def _read(store: Any, sequence: int) -> None:
    """Read a message; a damaged one is in `store.lost` afterwards."""
    try:
        store.get(sequence)
    except Damaged:
        return


def _nothing(check: FileCheck) -> None:
    """Findings are taken from the check."""
