"""How long this machine runs, and which of its runs this is; for the age clock of a node."""

import contextlib
import os
import time
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
UPTIME = "/proc/uptime"
SHOWN_OFF_NS = 500_000_000
"""A clock that is this far from the kernel's own figure is not the machine's."""


def running_ns() -> int:
    """Time since boot in ns; runs through sleep. The kernel's own figure counts (to 10 ms) where a
    preloaded library shows this process another time."""
    shown = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    try:
        fd = os.open(UPTIME, os.O_RDONLY | os.O_CLOEXEC)
        try:
            whole, _, part = os.read(fd, 64).split()[0].partition(b".")
        finally:
            os.close(fd)
        kernel_ns = int(whole) * 1_000_000_000 + int(part.ljust(9, b"0")[:9])
    except (OSError, ValueError, IndexError):
        return shown
    return shown if abs(shown - kernel_ns) < SHOWN_OFF_NS else kernel_ns


def boot_id() -> str:
    """The name of this run of the machine; empty where it has none."""
    with contextlib.suppress(OSError):
        return BOOT_ID.read_text().strip()
    return ""
