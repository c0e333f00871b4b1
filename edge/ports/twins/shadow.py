"""A directory of the real disk, seen through memory: reads come from its files, changes stay here.

So a store can be opened and looked at without one byte of it being written. A file is taken into
memory whole when it is first changed.
"""

import os
from pathlib import Path
from typing import cast

from headwater.edge.ports.files import boot_id
from headwater.edge.ports.twins.files import TwinFiles
from headwater.edge.ports.twins.inode import Change, TwinDirectory, TwinFile
from headwater.edge.ports.twins.paths import TwinPath


class RealBytes:
    """Content of a real file, read where it is asked for. Raises OSError when it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> bytes:
        begin, end, _ = part.indices(self.size)
        with self.path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), max(end - begin, 0), begin)


class ShadowFile(TwinFile):
    """A file of the real disk until it is changed, one in memory from then on."""

    def __init__(self, path: Path) -> None:
        super().__init__(cast(bytearray, RealBytes(path)))

    def change(self, change: Change) -> None:
        if not isinstance(self.content, bytearray):
            self.content = bytearray(self.content[:])
        change.apply(self.content)

    def sync(self, lies_kept: int) -> None:
        """Nothing of it is ever durable."""


def shadow_of(path: Path) -> TwinPath:
    """The twin of a directory, at its name on a disk with nothing else. Symbolic links are left
    out. Raises OSError."""
    disk = TwinFiles()
    disk.boot = boot_id(path)
    disk.tree.names[path.name] = _directory(path)
    return disk.root / path.name


def _directory(path: Path) -> TwinDirectory:
    made = TwinDirectory()
    for entry in path.iterdir():
        if entry.is_symlink():
            continue
        if entry.is_dir():
            made.names[entry.name] = _directory(entry)
        elif entry.is_file():
            file = ShadowFile(entry)
            file.links = 1
            made.names[entry.name] = file
    return made
