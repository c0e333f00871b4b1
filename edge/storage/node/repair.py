"""Repairs a stopped store: what can be made again is written again, and what cannot is told.

Second copies and indexes are rebuilt, damaged segments are copied to quarantine before they are
written again, messages that are damaged are listed as lost; those are asked for elsewhere when the
caller knows where.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from headwater.edge.kernel.kernel import Kernel
from headwater.edge.storage.directory.store_options import StoreOptions
from headwater.edge.storage.format.problem import Problem
from headwater.edge.storage.node.node_store import NodeStore
from headwater.edge.storage.node.rebuild import Fetch, Rebuild
from headwater.edge.storage.node.verify import Report, verify
from headwater.edge.storage.recovery.stream_recovery import RecoveredStream
from headwater.edge.storage.upkeep.scrubber import Scrubber

# As fast as the device reads.
RATE = 1 << 40
NEVER = 1e9

Source = Callable[[str, str], Fetch | None]
"""Where lost messages of a stream (account, name) can be had; None: nowhere."""
Progress = Callable[[str, int, int], None]
"""Called with what is being done, and how much of how much."""


@dataclass
class Refilled:
    """What became of a stream's lost messages."""

    account: str
    stream: str
    put_back: int
    refused: list[int]
    """Sequences for which the other side has a message that does not fit in its place."""
    lost: int
    """Messages that are still lost."""


@dataclass
class RepairReport:
    """What was found, and what was done about it."""

    found: Report
    kept: list[str] = field(default_factory=list)
    """Names in quarantine of copies of damaged segments."""
    written: int = 0
    """Files that were written again."""
    streams: list[Refilled] = field(default_factory=list)
    """Streams that lost messages."""
    problems: list[Problem] = field(default_factory=list)
    """What the start told."""
    unserved: int = 0
    """Streams that had to be put aside, or whose files are gone."""

    @property
    def ok(self) -> bool:
        """Whether nothing is lost any more, and every stream is served."""
        return not self.unserved and not any(row.lost for row in self.streams)


async def repair(options: StoreOptions, source: Source, progress: Progress) -> RepairReport:
    """Repair the store of `options.directory`. Raises StoreError, StoreLocked, OSError."""
    before = await verify(options, lambda done, total: progress("verify", done, total))
    report = RepairReport(before)
    loop = asyncio.get_running_loop()
    storage = NodeStore(Kernel(loop), replace(options, scrub_rate=0))
    found = storage.open()
    report.problems = list(storage.problems)
    report.unserved = storage.unserved
    try:
        _keep_damaged(storage, before, report)
        await _scrub(storage, report, before.bytes, progress)
        for stream in found:
            if stream.store.lost:
                report.streams.append(await _refill(storage, stream, source, progress))
    finally:
        await storage.close()
    return report


def _keep_damaged(storage: NodeStore, before: Report, report: RepairReport) -> None:
    """Copy segments with damaged records to quarantine: what they say may be of use to somebody."""
    root = storage.directory.root
    for row in before.streams:
        for name in row.damaged_segments:
            path = root / name
            if path.exists():
                kept = f"{path.parent.name}-{path.name}-{storage.directory.clock.wall_ns()}"
                reason = f"damaged segment of stream '{row.account} > {row.stream}'"
                storage.directory.keep_copy(path, kept, reason)
                report.kept.append(kept)


async def _scrub(storage: NodeStore, report: RepairReport, total: int, progress: Progress) -> None:
    scrubber = Scrubber(storage, RATE, NEVER)
    scrubber.thorough = True
    scrubber.begin_pass()
    while not (scrubber.passes and storage.compactor.idle):
        await asyncio.sleep(0.01)
        storage.kernel.turn()
        progress("repair", min(scrubber.bytes, total), total)
    scrubber.stop()
    report.written = scrubber.repaired
    await storage.log.wait_durable(storage.log.hand_over())
    progress("repair", total, total)


async def _refill(
    storage: NodeStore, stream: RecoveredStream, source: Source, progress: Progress
) -> Refilled:
    fetch = source(stream.account, stream.name)
    if fetch is None:
        return Refilled(stream.account, stream.name, 0, [], len(stream.store.lost))
    label = f"fetch {stream.account} > {stream.name}"
    work = Rebuild(storage, stream, fetch, lambda done, total: progress(label, done, total))
    store = await work.run()
    return Refilled(stream.account, stream.name, len(work.put_back), work.refused, len(store.lost))
