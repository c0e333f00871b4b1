"""Processes that share so many cores and no more: a cgroup of processors."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

V1 = Path("/sys/fs/cgroup/cpu")
V2 = Path("/sys/fs/cgroup")
PERIOD_US = 20_000
"""What is left of a share ends with its period: a short one lets work flow evenly."""


class ProcessorGroup:
    """A cgroup of version 1 or 2. Making it raises OSError where that cannot be: it needs root."""

    def __init__(self) -> None:
        self._first = (V1 / "cpu.cfs_quota_us").exists()
        self._top = V1 if self._first else V2
        self._path = self._top / f"headwater-{os.getpid()}"
        if not self._first:
            (self._top / "cgroup.subtree_control").write_text("+cpu")
        self._path.mkdir()

    def take_in(self, processes: Iterable[psutil.Process]) -> None:
        """Have these count, and what they start from now on."""
        self._move(self._path, (one.pid for one in processes))

    def allow(self, cores: float) -> None:
        """From now on they have so many cores together, 0.05 or more."""
        quota = int(PERIOD_US * cores)
        if self._first:
            (self._path / "cpu.cfs_period_us").write_text(f"{PERIOD_US}")
            (self._path / "cpu.cfs_quota_us").write_text(f"{quota}")
        else:
            (self._path / "cpu.max").write_text(f"{quota} {PERIOD_US}")

    def remove(self) -> None:
        """Let the processes go, and remove it."""
        while left := (self._path / "cgroup.procs").read_text().split():
            self._move(self._top, map(int, left))
        self._path.rmdir()

    @staticmethod
    def _move(path: Path, pids: Iterable[int]) -> None:
        for pid in pids:
            try:
                (path / "cgroup.procs").write_text(f"{pid}")
            except ProcessLookupError:
                continue


@contextmanager
def processor_group(processes: Iterable[psutil.Process]) -> Iterator[ProcessorGroup | None]:
    """A group of these while the block lasts; None where no group can be made."""
    try:
        group = ProcessorGroup()
    except OSError:
        yield None
        return
    try:
        group.take_in(processes)
        yield group
    finally:
        group.remove()
