"""What one stream may take on its device: stream metadata `headwater.disk_budget`.

Nothing is counted per message. The stream gets a bound of its bytes (`Stream.max_bytes`) up to
which it cannot pass the budget, whatever its messages are like; when it gets there, what it
really takes is looked up and the bound is set anew.
"""

import re
from typing import Any

from headwater.edge.jetstream.model.errors import invalid_config
from headwater.edge.jetstream.model.models import StreamConfig
from headwater.edge.storage.directory.disk_budget import DiskBudget
from headwater.edge.storage.segments.log_share import last_of

KEY = "headwater.disk_budget"
LEAST = 1 << 20
PROMISED_LEAST = 512 << 10
"""What can be kept to by whole segments, of which each has `SEGMENT_MIN`."""
SIZE = re.compile(r"(\d{1,18})\s*(?:([KMGT])(?:i?B)?|B)?", re.IGNORECASE | re.ASCII)
SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
# Segments of a stream with a budget: a rewritten one is there twice for a moment, and the oldest
# one goes away as a whole.
SEGMENTS = 16
SEGMENT_MIN = 64 << 10
# A message takes at most this many times the bytes that it counts, and at most this many bytes
# more than these and its subject.
COST_FACTOR = 4
COST_MORE = 96


def budget_of(config: StreamConfig) -> int:
    """Bytes, 0 for no budget. Sizes are like 500MB or 2G, with powers of 1024. Raises
    JetStreamError."""
    text = config.metadata.get(KEY)
    if text is None:
        return 0
    found = SIZE.fullmatch(text.strip())
    if found is None:
        raise invalid_config(f"{KEY} must be a size like 500MB")
    size = int(found.group(1)) << SHIFTS[(found.group(2) or "").upper()]
    if size < LEAST:
        raise invalid_config(f"{KEY} must be at least {LEAST >> 20}MB")
    if config.storage != "file":
        raise invalid_config(f"{KEY} is only supported on file storage")
    if config.num_replicas > 1:
        raise invalid_config(f"{KEY} is not supported on replicated streams")
    return size


def promised(config: StreamConfig) -> int:
    """What a stream's messages may take by its `max_bytes`; 0 when that bounds no device, or is
    too little to be kept to by whole segments."""
    bounded = config.storage == "file" and config.num_replicas == 1
    return config.max_bytes if bounded and config.max_bytes >= PROMISED_LEAST else 0


def apply(stream: Any, disk: DiskBudget, share: int = 0) -> None:
    """Bound what a stream takes from now on as its configuration says, or else at `share` bytes
    (0: no bound). Raises JetStreamError."""
    budget = budget_of(stream.config) or share
    stream.disk = None
    if stream.config.storage == "file":
        share = max(budget // SEGMENTS, SEGMENT_MIN) if budget else disk.stream_segment
        stream.store.segment_limit = min(share, disk.stream_segment)
    if budget:
        stream.disk = StreamBudget(stream, disk, budget)


class StreamBudget:
    """Keeps a stream within `budget` bytes."""

    def __init__(self, stream: Any, disk: DiskBudget, budget: int) -> None:
        self._stream = stream
        self._store = stream.store
        self._disk = disk
        self._budget = budget
        self._seen: tuple[int, ...] = ()
        self.reserve = self.room = 0
        self.measure()

    def measure(self) -> None:
        """Set the stream's bound by what it takes now."""
        seen = (self._store.bytes, self._store.last_seq, self._disk.allocation.changes)
        if seen == self._seen:
            return
        self._seen = seen
        needed, largest = self._disk.needed_by(self._store)
        self.reserve = max(self._store.segment_limit, largest)
        self.room = self._budget - self.reserve - needed
        self._bound(max(self.room, 0) // COST_FACTOR)

    def _bound(self, more: int) -> None:
        wanted = self._stream.config.max_bytes
        bound = max(self._store.bytes + more, 1)
        self._stream.max_bytes = min(bound, wanted) if wanted > 0 else bound

    def has_room(self, size: int, subject_length: int) -> bool:
        """Whether a message that counts `size` bytes fits, of a stream that is at its bound."""
        wanted = self._stream.config.max_bytes
        if 0 < wanted < self._store.bytes + size:
            return False
        self.measure()
        if self.room < size + subject_length + COST_MORE:
            return False
        self._bound(max(self.room // COST_FACTOR, size))
        return True

    def last_to_go(self) -> int:
        """Up to which sequence the oldest messages have to go, of a stream that is above its
        bound; 0: it has a greater one."""
        store = self._store
        if 0 < self._stream.config.max_bytes < store.bytes:
            return int(store.first_seq)
        self.measure()
        if self.room >= self.reserve // 2:
            return 0
        # The bound is set when they are gone: until then, what comes would take their place.
        self._seen = ()
        self._stream.max_bytes = 1
        return self._oldest(self.reserve // 2 - self.room) or int(
            last_of(self._store, self.reserve - self.room)
        )

    def _oldest(self, size: int) -> int:
        """The last of the oldest messages whose segments take `size` bytes, or of all segments but
        the newest; 0 when there is no other. No more goes than has to: a segment is a good part
        of a small stream."""
        store, last = self._store, 0
        for part in store.segments[:-1]:
            if part.last >= store.first_seq:
                last = part.last
                size -= self._disk.segment_bytes(part)
                if size <= 0:
                    break
        return last
