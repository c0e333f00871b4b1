"""Runs folders of tests with as little memory as a gateway has: `python -m tests.small_machine 512
tests/edge ...`.

The tests of each folder at or below those, and all that they start, share a memory cgroup of so
many MiB, without swap: what takes more is killed by the system, and the folder has failed. Root is
needed.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")
MIB = 1 << 20
TESTS = "test_*.py"

NO_TESTS = 5
"""What pytest ends with when a folder has none."""


class MemoryGroup:
    """A cgroup of version 1 or 2 with a limit. Making it raises OSError where that cannot be."""

    def __init__(self, limit: int) -> None:
        self.first = (V1 / "memory.limit_in_bytes").exists()
        self.path = (V1 if self.first else V2) / f"headwater-{os.getpid()}"
        self.path.mkdir()
        self._put("memory.limit_in_bytes" if self.first else "memory.max", limit)
        if not self.first:
            self._put("memory.swap.max", 0)

    def _put(self, name: str, value: int) -> None:
        (self.path / name).write_text(f"{value}\n")

    def _number(self, name: str) -> int:
        return int((self.path / name).read_text())

    def join(self) -> None:
        """Have this process, and what it starts from now on, count."""
        self._put("cgroup.procs", os.getpid())

    @property
    def peak(self) -> int:
        """The most bytes that were taken, the page cache included; 0 where nobody can tell."""
        name = "memory.max_usage_in_bytes" if self.first else "memory.peak"
        return self._number(name) if (self.path / name).exists() else 0

    @property
    def kills(self) -> int:
        """How many processes were killed for want of memory."""
        name = "memory.oom_control" if self.first else "memory.events"
        rows = (line.split() for line in (self.path / name).read_text().splitlines())
        return sum(int(value) for key, value in rows if key == "oom_kill")

    def remove(self) -> None:
        """End what is left in it, and the group."""
        for _ in range(100):
            left = (self.path / "cgroup.procs").read_text().split()
            if not left:
                break
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.05)
        self.path.rmdir()


def run(limit: int, name: str, command: list[str]) -> int:
    """One command in a group of its own: its exit code, or 1 when something was killed."""
    group = MemoryGroup(limit * MIB)
    try:
        code = subprocess.run(command, preexec_fn=group.join).returncode
        print(
            f"{name}: limit {limit} MiB, peak {group.peak // MIB} MiB, killed {group.kills}",
            flush=True,
        )
        return abs(code) or int(group.kills > 0)
    finally:
        group.remove()


def rooms(folder: Path) -> list[Path]:
    """The folders at or below one that have tests of their own."""
    return list({test.parent for test in folder.rglob(TESTS)})


def main(arguments: list[str]) -> int:
    """How many folders of tests failed."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"]
    limit, *wanted = arguments
    folders = sorted({room for folder in wanted for room in rooms(Path(folder))})
    codes = {
        folder: run(int(limit), str(folder), [*pytest, *map(str, sorted(folder.glob(TESTS)))])
        for folder in folders
    }
    failed = [str(folder) for folder, code in codes.items() if code not in (0, NO_TESTS)]
    print(f"{len(folders) - len(failed)} of {len(folders)} folders pass", *failed, flush=True)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
