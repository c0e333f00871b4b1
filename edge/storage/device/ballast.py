"""A file that only takes room, for when there is none.

Moving messages out of the log, and a start after a crash, need room before they give any back.
While the file is there they have it. It is made again as soon as there is room, and before any
message gets new room in the log.
"""

from contextlib import suppress
from pathlib import Path

from headwater.edge.ports import files

PARTS = 16


class Ballast:
    """`size` bytes at `path`, or as much of it as there was room for."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        self.held = 0
        """Bytes that are held now."""

    @property
    def there(self) -> bool:
        """Whether all of it is held."""
        return self.held >= self.size

    @property
    def missing(self) -> int:
        """Bytes that should be held and are not."""
        return max(self.size - self.held, 0)

    def find(self) -> None:
        """See what a run before this one left."""
        if self.path.exists():
            self.held = files.allocated_bytes(self.path)

    def make(self) -> None:
        """Hold all of it. Raises OSError (ENOSPC); then what was held still is."""
        if not self.there:
            self._allocate(self.size)

    def allocate(self) -> None:
        """Hold as many sixteenths of it as there is room for."""
        for part in range(PARTS, 0, -1):
            if self.size * part // PARTS <= self.held:
                return
            with suppress(OSError):
                self._allocate(self.size * part // PARTS)

    def _allocate(self, size: int) -> None:
        fd = files.open_file(self.path, files.WRITE)
        try:
            files.allocate(fd, size)
            files.sync(fd)
            files.sync_directory(self.path.parent)
            self.held = size
        except OSError:
            files.truncate(fd, self.held)
            raise
        finally:
            files.close(fd)

    def free(self) -> bool:
        """Give the room back; whether there was any."""
        held, self.held = self.held > 0, 0
        with suppress(OSError):
            files.remove(self.path, True)
        return held
