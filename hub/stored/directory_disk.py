"""The disk port over a directory of a node's store, real or in memory, for the small files of its
groups: `headwater.edge.ports.files` does the work."""

import errno
from pathlib import Path

from headwater.edge.ports import files


class DirectoryDisk:
    """Files stay open, so that a sync speaks of the very writes that were made."""

    def __init__(self, directory: Path) -> None:
        """Make the directory when it is not there. Raises OSError."""
        self.directory = directory
        self._open: dict[str, int] = {}
        if not directory.is_dir():
            files.new_directory(directory, True)
            files.sync_directory(directory.parent)

    def _fd(self, name: str) -> int:
        fd = self._open.get(name)
        if fd is None:
            fd = self._open[name] = files.open_file(self.directory / name, files.WRITE)
        return fd

    def _forget(self, name: str) -> None:
        fd = self._open.pop(name, None)
        if fd is not None:
            files.close(fd)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir() if path.is_file())

    def read(self, name: str) -> bytes:
        return (self.directory / name).read_bytes()

    def place(self, name: str) -> tuple[int, int, int]:
        """Device, inode and time of the last change (ns) of a file: a copy has others."""
        found = (self.directory / name).stat()
        return found.st_dev, found.st_ino, found.st_ctime_ns

    def write(self, name: str, offset: int, data: bytes) -> None:
        files.write_all(self._fd(name), data, offset)

    def sync(self, name: str) -> None:
        files.sync_data(self._fd(name))

    def sync_names(self) -> None:
        files.sync_directory(self.directory)

    def rename(self, old: str, new: str) -> None:
        self._forget(new)
        self._forget(old)
        files.rename(self.directory / old, self.directory / new)

    def remove(self, name: str) -> None:
        self._forget(name)
        files.remove(self.directory / name)

    def make_again(self, name: str) -> None:
        """After a failed sync: what can be read goes to a new file, which takes the name. Raises
        OSError, and then the name has what it had."""
        temporary = f"{name}.new"
        content = self.read(name)
        self._forget(temporary)
        files.remove(self.directory / temporary, True)
        self.write(temporary, 0, content)
        self.sync(temporary)
        if self.read(temporary) != content:
            raise OSError(errno.EIO, "not what was written", temporary)
        self.rename(temporary, name)
        self.sync_names()

    def close(self) -> None:
        """Close every file."""
        for name in list(self._open):
            self._forget(name)
