"""What a figure depends on besides the servers: processors, system, and the disk below."""

import os
import platform
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SYNCS = 30
"""Writes with fdatasync of which the median is taken."""

BLOCK = 4096


@dataclass(frozen=True)
class Machine:
    """Facts for a report. `fdatasync_us` is the median of a 4 KiB write with fdatasync."""

    processors: int
    system: str
    python: str
    filesystem: str
    fdatasync_us: float

    def line(self) -> str:
        """One line for people."""
        return (
            f"{self.processors} processors, {self.system}, Python {self.python}; stores on "
            f"{self.filesystem}, 4 KiB write and fdatasync {self.fdatasync_us:.0f} us"
        )

    def document(self) -> dict[str, Any]:
        """The same for JSON."""
        return asdict(self)


def look(parent: Path | None = None) -> Machine:
    """Describe this machine and the directory where stores are made."""
    folder = parent or Path(tempfile.gettempdir())
    return Machine(
        os.cpu_count() or 1,
        f"{platform.system()} {platform.release()}",
        platform.python_version(),
        filesystem(folder),
        sync_cost(folder),
    )


def filesystem(folder: Path) -> str:
    """Type of the filesystem that holds `folder`, by the longest mount point above it."""
    found = ("", "unknown")
    path = str(folder.resolve())
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split(" ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(found[0]):
            found = (point, kind)
    return found[1]


def sync_cost(folder: Path) -> float:
    """Microseconds for a 4 KiB overwrite with fdatasync."""
    with tempfile.TemporaryFile(dir=folder) as file:
        block = b"x" * BLOCK
        samples = []
        for _ in range(SYNCS):
            begin = time.perf_counter()
            os.pwrite(file.fileno(), block, 0)
            os.fdatasync(file.fileno())
            samples.append(time.perf_counter() - begin)
    return statistics.median(samples) * 1e6
