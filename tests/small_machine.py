"""Runs a command with as little memory as a gateway: `python -m tests.small_machine 512 pytest`.

The command and all that it starts share a memory cgroup of so many MiB, without swap: what takes
more is killed by the system, and the command has failed. Root is needed.
"""

import os
import subprocess
import sys
from pathlib import Path

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")
MIB = 1 << 20


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
        """Nothing runs in it any more."""
        self.path.rmdir()


def main(arguments: list[str]) -> int:
    """The command's exit code; 1 when something was killed."""
    limit, *command = arguments
    group = MemoryGroup(int(limit) * MIB)
    try:
        code = subprocess.run(command, preexec_fn=group.join).returncode
        print(f"limit {limit} MiB, peak {group.peak // MIB} MiB, killed {group.kills}", flush=True)
        return abs(code) or int(group.kills > 0)
    finally:
        group.remove()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
