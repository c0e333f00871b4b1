"""How a node stores: what its configuration says, and where time and chance come from."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headwater.edge.ports.ports import Clock, Random
from headwater.security.sealing import KeyRing

MIB = 1 << 20
# A gateway's flash is small; a hub sets 64 MiB.
DEFAULT_SEGMENT_BYTES = 8 * MIB
DEFAULT_OPEN_PAGES = 128
DEFAULT_INDEX_MEMORY = 16 * MIB


@dataclass
class StoreOptions:
    """How a node stores. `sync_interval` and `max_delay` (seconds) are for streams that say nothing
    themselves: with the first 0, acks come after a sync ("fsync"), which may wait `max_delay` for
    company; else acks come after the write, and syncs that often. Limits are bytes; 0 is unlimited.
    """

    directory: str | Path
    segment_bytes: int = DEFAULT_SEGMENT_BYTES
    sync_interval: float = 0.0
    max_delay: float = 0.0
    max_store: int = 0
    max_memory: int = 0
    disk_budget: int = 0
    """What everything in the directory may take on its device; 0: anything."""
    open_pages: int = DEFAULT_OPEN_PAGES
    """Pages of a stream's index, of 10 KiB each, that may always stay open; those of messages that
    are in the log are not counted."""
    index_memory: int = DEFAULT_INDEX_MEMORY
    """Bytes of packed pages of all indexes together that stay on the heap. Older ones lie in mapped
    files, whose memory the system may use; not where there are keys, since such a page is open."""
    pack_indexes: bool = False
    """Whether index files of segments are written packed: fewer bytes, more time of the processor.
    Both kinds are read."""
    bundles: bool = False
    """Whether short messages that are gathered for one sync share a header in the log: fewer bytes,
    and programs that know format 2 alone refuse the folder."""
    stream_segment_bytes: int = 0
    """Of a segment of a stream; 0: as those of the log."""
    scrub_rate: int = 0
    """Bytes per second that the scrubber reads; 0: it does not."""
    scrub_pause: float = 86400.0
    """Seconds between two passes of the scrubber."""
    numbered_elsewhere: Callable[[bytes], bool] = lambda meta: False
    """Whether the stream with this meta takes its sequences from another one (a mirror): it does
    not leave any out after damage, since it gets the messages again."""
    counts_as_memory: Callable[[bytes], bool] = lambda meta: False
    """Whether messages of the stream with this meta count the bytes that they would in memory."""
    progress: Callable[[int, int], None] = lambda done, total: None
    """Called while a start reads streams, with segments done and segments in all."""
    keys: KeyRing | None = None
    """What seals streams; None: nothing is sealed, and sealed streams stop the start."""
    clock: Clock | None = None
    chance: Random | None = None
    """Where times and identities come from; None: the system's."""
