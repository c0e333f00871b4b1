"""What waits until removals are durable: whoever writes messages elsewhere, or removes files.

A message that was taken out is left out when its segment is checkpointed or rewritten. A crash must
not make that last while the removal itself, and what was written with it (the message that took its
place), are gone.
"""

from collections.abc import Callable
from typing import Any

from headwater.edge.storage.device.background import Background
from headwater.edge.storage.format.errors import StoreFailed
from headwater.edge.storage.segments.segment_jobs import write_index

RETRY = 1.0


def when_removals_last(log: Any, then: Callable[[], object]) -> None:
    """Call `then` once everything that was removed up to now is durable in `log` (a CommitLog).
    Without room to write removals down it does not wait for those: what it does makes room."""
    if log.closed:
        return
    if isinstance(log.failure, StoreFailed):
        log.kernel.loop.call_later(RETRY, when_removals_last, log, then)
        return
    lsn = log.hand_over()
    log.when_durable(lsn if log.failure is None else log.handed, then)


def write_index_later(
    log: Any, background: Background, store: Any, segment: Any, data: bytes
) -> None:
    """Have the index of a segment written, which leaves out what was removed up to now. Another
    index, or another file for the segment, that comes first takes its place."""
    segment.indexed = True
    segment.index_number += 1
    wanted = (segment.index_number, segment.generation)

    def write() -> None:
        now = (segment.index_number, segment.generation)
        if now == wanted and not store.closed and segment in store.segments:
            background.submit(lambda: write_index(segment.path, data))

    when_removals_last(log, write)
