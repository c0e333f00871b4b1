"""A path on a disk in memory, with the methods of `pathlib.Path` that the store uses."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import total_ordering
from pathlib import PurePosixPath
from typing import BinaryIO, Protocol

from headwater.edge.ports.twins.inode import Node, TwinDirectory, TwinFile


class Volume(Protocol):
    """The disk that a path is on: names are tuples from the root. See `twins.files`."""

    capacity: int

    @property
    def used(self) -> int:
        """Bytes of all blocks."""

    def record(self, what: str, path: str) -> None:
        """An operation is about to happen."""

    def node(self, parts: tuple[str, ...]) -> Node | None:
        """What has a name; None when nothing has it."""

    def directory(self, parts: tuple[str, ...]) -> TwinDirectory:
        """Raises FileNotFoundError, NotADirectoryError."""

    def file(self, parts: tuple[str, ...]) -> TwinFile:
        """Raises FileNotFoundError, IsADirectoryError."""

    def make_directory(self, parts: tuple[str, ...]) -> None:
        """Raises FileExistsError."""

    def rename(self, old: tuple[str, ...], new: tuple[str, ...]) -> None:
        """Replace `new` by `old`."""

    def unlink(self, parts: tuple[str, ...]) -> None:
        """Remove a file's name."""

    def remove_directory(self, parts: tuple[str, ...]) -> None:
        """Raises OSError unless it is empty."""

    def open(self, parts: tuple[str, ...], flags: int) -> int:
        """A descriptor of a file or directory."""


@dataclass
class TwinStat:
    """What `stat` tells."""

    st_size: int


@total_ordering
class TwinPath:
    """Immutable. It has no `__fspath__`: a function of `os` that gets one fails."""

    __slots__ = ("disk", "parts")

    def __init__(self, disk: Volume, parts: tuple[str, ...]) -> None:
        self.disk = disk
        self.parts = parts

    # -- names ----------------------------------------------------------------

    def __truediv__(self, name: object) -> "TwinPath":
        return TwinPath(self.disk, self.parts + PurePosixPath(str(name)).parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TwinPath) and (self.disk, self.parts) == (other.disk, other.parts)

    def __lt__(self, other: "TwinPath") -> bool:
        return self.parts < other.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    def __str__(self) -> str:
        return "/" + "/".join(self.parts)

    def __repr__(self) -> str:
        return f"TwinPath('{self}')"

    @property
    def name(self) -> str:
        return self.parts[-1] if self.parts else ""

    @property
    def stem(self) -> str:
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> "TwinPath":
        return TwinPath(self.disk, self.parts[:-1])

    def with_name(self, name: str) -> "TwinPath":
        return TwinPath(self.disk, (*self.parts[:-1], name))

    def with_suffix(self, suffix: str) -> "TwinPath":
        return self.with_name(self.stem + suffix)

    # -- directories ----------------------------------------------------------

    def exists(self) -> bool:
        return self.disk.node(self.parts) is not None

    def is_dir(self) -> bool:
        return isinstance(self.disk.node(self.parts), TwinDirectory)

    def is_file(self) -> bool:
        return isinstance(self.disk.node(self.parts), TwinFile)

    def iterdir(self) -> Iterator["TwinPath"]:
        self.disk.record("list", str(self))
        names = sorted(self.disk.directory(self.parts).names)
        return iter([self / name for name in names])

    def glob(self, pattern: str) -> Iterator["TwinPath"]:
        found = self.iterdir() if self.is_dir() else iter(())
        return iter([path for path in found if fnmatchcase(path.name, pattern)])

    def rglob(self, pattern: str) -> Iterator["TwinPath"]:
        found = []
        for path in self.iterdir():
            if fnmatchcase(path.name, pattern):
                found.append(path)
            if path.is_dir():
                found += path.rglob(pattern)
        return iter(found)

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        if parents and len(self.parts) > 1:
            self.parent.mkdir(mode, True, True)
        if not (exist_ok and self.is_dir()):
            self.disk.make_directory(self.parts)

    def rename(self, target: "TwinPath") -> "TwinPath":
        self.disk.rename(self.parts, target.parts)
        return target

    replace = rename

    def unlink(self, missing_ok: bool = False) -> None:
        if not (missing_ok and not self.exists()):
            self.disk.unlink(self.parts)

    def rmdir(self) -> None:
        self.disk.remove_directory(self.parts)

    def remove_tree(self) -> None:
        """As `shutil.rmtree`."""
        for path in self.iterdir():
            if path.is_dir():
                path.remove_tree()
            else:
                path.unlink()
        self.rmdir()

    # -- content --------------------------------------------------------------

    def open_descriptor(self, flags: int) -> int:
        """For `headwater.edge.ports.files.open_file`."""
        return self.disk.open(self.parts, flags)

    def stat(self) -> TwinStat:
        if self.is_dir():
            return TwinStat(0)
        return TwinStat(len(self.disk.file(self.parts).content))

    def read_bytes(self) -> bytes:
        file = self.disk.file(self.parts)
        self.disk.record("read", str(self))
        return file.read(len(file.content), 0, str(self))

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.read_bytes().decode(encoding, errors)

    def open(self, mode: str = "rb") -> BinaryIO:
        """For reading only."""
        if mode != "rb":
            raise ValueError("a twin's file is written through headwater.edge.ports.files")
        return io.BytesIO(self.read_bytes())

    def free_bytes(self) -> int:
        """Room that is left; 1 TiB without a capacity."""
        disk = self.disk
        return max(disk.capacity - disk.used, 0) if disk.capacity else 1 << 40

    def allocated_bytes(self) -> int:
        """Bytes of its blocks."""
        return self.disk.file(self.parts).blocks()
