"""What this process uses of the machine, read from the kernel without further packages."""

import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

SAMPLE_S = 1.0
"""Processor use is averaged over at least this long."""

_PAGE = resource.getpagesize()


class ProcessUse:
    """Memory and processor use of this process."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """`clock` gives ns since any moment."""
        self._clock = clock
        self._since = clock()
        self._spent = _processor_seconds()
        self._percent = 0.0

    def memory(self) -> int:
        """Resident bytes; the highest so far where the kernel does not tell the present ones."""
        try:
            return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
        except (OSError, IndexError, ValueError):
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return peak if sys.platform == "darwin" else peak * 1024

    def processor(self) -> float:
        """Percent of one core used since the last sample."""
        now = self._clock()
        passed = (now - self._since) / 1e9
        if passed >= SAMPLE_S:
            spent = _processor_seconds()
            self._percent = round((spent - self._spent) / passed * 100, 1)
            self._since, self._spent = now, spent
        return self._percent


def _processor_seconds() -> float:
    times = os.times()
    return times.user + times.system
