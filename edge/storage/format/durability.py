"""When a stream's messages are acknowledged, and how long their sync may wait."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Durability:
    """`interval` false ("fsync"): acks come after the sync, which may wait up to `seconds` for
    company. True: acks come after the write, and the sync within `seconds`. What is acknowledged
    then survives the end of the process, but not that of the system (docs/DURABILITY.md)."""

    interval: bool = False
    seconds: float = 0.0

    @property
    def delay_ns(self) -> int:
        """How long a sync may wait."""
        return int(self.seconds * 1e9)
