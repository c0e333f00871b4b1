"""Time, disk, network and chance, as small ports: what a pure core may be given.

The in-memory twins in `headwater.edge.ports.twins` behave like the worst machine you can own.
"""

import random
import time
from typing import Protocol


class Clock(Protocol):
    """Nanoseconds."""

    def wall_ns(self) -> int:
        """Since the Unix epoch; may jump either way."""

    def monotonic_ns(self) -> int:
        """Since any moment; goes on while the machine is suspended."""


class Random(Protocol):
    """Chance."""

    def below(self, n: int) -> int:
        """A number from 0 to n - 1."""

    def randbytes(self, n: int) -> bytes:
        """So many bytes."""


class Disk(Protocol):
    """One flat directory. Every method raises OSError as the operating system does."""

    def names(self) -> list[str]:
        """Files that are there, sorted."""

    def read(self, name: str) -> bytes:
        """The whole file."""

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Write at a place; makes the file when it is not there. Not durable before `sync`."""

    def sync(self, name: str) -> None:
        """Make the content of a file durable. After an error nothing about it is certain."""

    def sync_names(self) -> None:
        """Make creations, renames and removals durable."""

    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old`."""

    def remove(self, name: str) -> None:
        """Remove a file."""


class Net(Protocol):
    """Packets between nodes: they may be lost, late, doubled and out of order."""

    def send(self, sender: int, to: int, packet: object) -> None:
        """Never waits and never fails."""


class SystemClock:
    """The machine's."""

    def wall_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class SystemRandom:
    """The operating system's."""

    def __init__(self) -> None:
        self._source = random.SystemRandom()

    def below(self, n: int) -> int:
        bits = n.bit_length() - 1
        # A range that is a power of two needs no second draw, and so asks the system once.
        return self._source.getrandbits(bits) if n == 1 << bits else self._source.randrange(n)

    def randbytes(self, n: int) -> bytes:
        return self._source.randbytes(n)
