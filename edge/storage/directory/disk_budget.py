"""What a node's store takes on its device, and what it may take.

The allocation counts allocated blocks (`headwater.edge.ports.allocation`). A used-up budget is the
same to the store as a full device: publishes are refused, removals and what gives room back go on.
"""

from pathlib import Path
from typing import Any

from headwater.edge.ports import files
from headwater.edge.ports.allocation import MARGIN, Allocation
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.segments.log_share import log_share
from headwater.edge.storage.segments.segment_jobs import index_path

# Slots that are always taken (two spare ones, the active one, the one that is checkpointed), the
# ballast of two, and as much for messages in segments.
LEAST_SLOTS = 8
# Indexing a sealed segment holds the loop for about a millisecond per 8 MiB.
STREAM_SEGMENT_MAX = 32 << 20
# What a message takes in an index that is not written yet.
INDEX_ENTRY = 48


def least_budget(segment_bytes: int) -> int:
    """The least bytes that a store with commit segments of this size works with."""
    return LEAST_SLOTS * segment_bytes + 2 * MARGIN


def is_trimmed(name: str, oldest: int) -> bool:
    """Whether a file is of a segment before the one with number `oldest`: let go of, and not yet
    removed. That is another thread's work, and who counted it would remove more and more."""
    number, _, kind = name.partition(".")
    return kind in ("seg", "idx") and number.isdigit() and int(number) < oldest


class DiskBudget:
    """The allocation of a store's directory while it is open."""

    def __init__(self, root: Path, budget: int, segment_bytes: int, stream_bytes: int = 0) -> None:
        """`segment_bytes` are those of the log's segments, `stream_bytes` those of streams' (0: as
        the log's). Raises StoreError when the budget is too small."""
        self.allocation = Allocation(root)
        self.stream_segment = min(stream_bytes or segment_bytes, STREAM_SEGMENT_MAX)
        """Bytes of a stream's segments when nobody wants smaller ones."""
        self._segment_bytes = segment_bytes
        self._budget = self._checked(budget)

    def _checked(self, budget: int) -> int:
        least = least_budget(self._segment_bytes)
        if 0 < budget < least:
            raise StoreError(
                f"a disk budget of {budget} bytes is too small: with commit segments of "
                f"{self._segment_bytes} bytes the least is {least}"
            )
        return budget

    def open(self) -> None:
        """Count what is there; the directory's lock is held."""
        files.track_allocation(self.allocation)
        self.allocation.set_budget(self._budget)

    def close(self) -> None:
        """The directory is nobody's business any more."""
        files.forget_allocation(self.allocation)

    def set(self, budget: int) -> None:
        """Another budget, from now on. Raises StoreError when it is too small."""
        self._budget = self._checked(budget)
        self.allocation.set_budget(self._budget)

    def stream_bytes(self, store: Any) -> int:
        """Bytes of a stream's files; 0 for a stream in memory."""
        directory = getattr(store, "directory", None)
        return self.allocation.folder_bytes(directory) if directory is not None else 0

    def segment_bytes(self, segment: Any) -> int:
        """Bytes of a stream's segment and its index."""
        index = self.allocation.bytes_of(index_path(segment.path))
        return self.allocation.bytes_of(segment.path) + index

    def needed_by(self, store: Any) -> tuple[int, int]:
        """What a stream's files, without those that are about to go, and its messages in the log
        take, and the largest of its segments with its index; bytes."""
        total, largest = log_share(store), 0
        sizes = self.allocation.sizes_in(store.directory)
        for segment in [*store.segments, *store.leaving]:
            index = sizes.pop(index_path(segment.path).name, 0)
            size = sizes.pop(segment.path.name, 0) + index
            if segment not in store.leaving and segment.last >= store.first_seq:
                total += size if index else size + INDEX_ENTRY * segment.live
                largest = max(largest, size)
        oldest = store.segments[0].number if store.segments else 0
        others = [size for name, size in sizes.items() if not is_trimmed(name, oldest)]
        return total + sum(others), largest

    def numbers(self) -> dict[str, float]:
        """Gauges for monitoring."""
        return {"allocated_bytes": self.allocation.used, "disk_budget": self.allocation.budget}
