"""A file that only takes room, for when there is none.

Moving messages out of the log, and a start after a crash, need room before they give any back.
While the file is there they have it. It is made again as soon as there is room, and before any
message gets new room in the log.
"""

from contextlib import suppress
from pathlib import Path

from headwater.edge import files


class Ballast:
    """`size` bytes at `path`."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        self._there = False

    @property
    def there(self) -> bool:
        """Whether the room is held."""
        return self._there

    def find(self) -> None:
        """See what a run before this one left."""
        self._there = self.path.exists() and files.allocated_bytes(self.path) >= self.size

    def make(self) -> None:
        """Hold the room, if it is not held. Raises OSError (ENOSPC) and leaves nothing then."""
        if self._there:
            return
        fd = files.open_file(self.path, files.WRITE)
        try:
            files.allocate(fd, self.size)
            self._there = True
        except OSError:
            self.path.unlink()
            raise
        finally:
            files.close(fd)

    def release(self) -> bool:
        """Give the room back; whether there was any."""
        held = self._there or self.path.exists()
        self._there = False
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
        return held
