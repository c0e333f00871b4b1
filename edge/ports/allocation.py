"""What a directory takes on its device, kept up file by file, and a budget for it.

`headwater.edge.ports.files` tells of every change that it makes to a file, so nothing is walked but
once, at the start. What counts are allocated blocks: preallocated room is in, holes are not. Growth
is claimed before it happens, and refused like a full device refuses it.
"""

import errno
import os
import threading
from contextlib import suppress
from pathlib import Path

CLAIM_BYTES = 4096
"""A claim is rounded up to this; afterwards the file is measured."""
MARGIN = 64 << 10
"""Left of a budget for what nobody claims: directories that grow, a file system's own blocks."""
OVER = "the disk budget is used up"


def blocks_of(path: Path) -> int:
    """What a file or directory really takes: holes are not counted and preallocation is. Raises
    OSError."""
    if isinstance(path, Path):
        return path.stat().st_blocks * 512
    return 0 if path.is_dir() else int(path.allocated_bytes())


class Allocation:
    """The allocation of one directory. Any thread may tell it something.

    `used` are the bytes of everything below `root`, directories too. `budget` is what they may
    take, 0 for any number. A directory that takes more already may go on with what it has: `limit`
    is then what it took, and comes down as that does (`tighten`).
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.used = 0
        self.budget = 0
        self.limit = 0
        self.changes = 0
        """Grows with every change; when it has not, nothing has."""
        self._folders: dict[str, dict[str, int]] = {}
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raises OSError (ENOSPC) when more is taken than the budget allows."""
        if 0 < self.budget < self.used:
            raise OSError(errno.ENOSPC, OVER, str(self.root))

    def set_budget(self, budget: int) -> None:
        """Bound what is taken from now on to `budget` bytes; 0 for any number."""
        with self._lock:
            self.budget = budget
            self.limit = max(budget, self.used) if budget else 0

    def tighten(self) -> None:
        """What was given back of more than the budget is not taken again."""
        with self._lock:
            self.limit = max(self.budget, min(self.limit, self.used))

    def folder_bytes(self, folder: Path) -> int:
        """What a directory with its files takes; directories in it are not looked into."""
        with self._lock:
            return sum(self._folders.get(str(folder), {}).values())

    def sizes_in(self, folder: Path) -> dict[str, int]:
        """What each file of a directory takes, by name; the directory itself has the name ""."""
        with self._lock:
            return dict(self._folders.get(str(folder), {}))

    def bytes_of(self, path: Path) -> int:
        """What one file takes, 0 when there is none."""
        with self._lock:
            return self._folders.get(str(path.parent), {}).get(path.name, 0)

    def claim(self, path: Path, size: int) -> None:
        """A file is about to have at least `size` bytes. Raises OSError (ENOSPC)."""
        size = -(-size // CLAIM_BYTES) * CLAIM_BYTES
        with self._lock:
            folder = self._folders.setdefault(str(path.parent), {})
            growth = size - folder.get(path.name, 0)
            if growth <= 0:
                return
            if self.limit and self.used + growth > self.limit - MARGIN:
                raise OSError(errno.ENOSPC, OVER, str(path))
            folder[path.name] = size
            self.used += growth
            self.changes += 1

    def measure(self, path: Path) -> None:
        """A file or directory changed, came or went away."""
        with self._lock:
            if path.is_dir():
                self._set(str(path), "", path)
            else:
                self._set(str(path.parent), path.name, path)

    def renamed(self, old: Path, new: Path) -> None:
        """A name changed."""
        if new.is_dir():
            self.scan(old)
            self.scan(new)
        else:
            self.measure(old)
            self.measure(new)

    def scan(self, path: Path) -> None:
        """Measure everything in a directory, which may be gone."""
        with self._lock:
            for name in [name for name in self._folders if is_below(name, str(path))]:
                self.used -= sum(self._folders.pop(name).values())
            if path.is_dir():
                self._scan(path)

    def _scan(self, path: Path) -> None:
        self._set(str(path), "", path)
        with suppress(OSError):
            for entry in path.iterdir():
                if entry.is_dir():
                    self._scan(entry)
                else:
                    self._set(str(path), entry.name, entry)

    def _set(self, folder: str, name: str, path: Path) -> None:
        try:
            size = blocks_of(path)
        except OSError:
            size = 0
        rows = self._folders.setdefault(folder, {})
        self.changes += 1
        self.used += size - rows.get(name, 0)
        if size:
            rows[name] = size
        else:
            rows.pop(name, None)
        if not rows:
            del self._folders[folder]


def is_below(path: str, folder: str) -> bool:
    """Whether one path is, or lies in, the other."""
    return path == folder or path.startswith(folder + os.sep)
