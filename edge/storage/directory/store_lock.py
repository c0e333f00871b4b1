"""Holds a store that no node runs on, without changing anything in it."""

from pathlib import Path
from types import TracebackType

from headwater.edge.ports import files
from headwater.edge.storage.format.errors import StoreError, StoreLocked


def process_of(fd: int) -> str:
    """What an open lock file says about who holds it."""
    return files.read_at(fd, 32, 0).split(b"\n")[0].decode("ascii", "replace") or "unknown"


def unlockable(path: Path, error: OSError) -> StoreError:
    """What is said where the system locks no file, as over NFS without its lock service."""
    return StoreError(
        f"cannot lock {path}: {error.strerror}; choose a store_dir where files can be locked"
    )


def holder(root: Path) -> str:
    """The process that holds the store in `root`; empty when none does, or nobody may look."""
    try:
        fd = files.open_file(root / "lock", files.READ_ONLY)
    except OSError:
        return ""
    try:
        files.lock(fd)
    except BlockingIOError:
        return process_of(fd)
    except OSError:
        return ""
    finally:
        files.close(fd)
    return ""


class StoreLock:
    """The lock of `<store_dir>/jetstream`, as a context manager.

    Raises StoreLocked while a node runs, StoreError when there is no store.
    """

    def __init__(self, store_dir: Path) -> None:
        self.root = store_dir / "jetstream"
        self._fd = -1

    def __enter__(self) -> "StoreLock":
        if not (self.root / "HEADWATER").exists() and not (self.root / "log").is_dir():
            raise StoreError(
                f"there is no store of Headwater in {self.root}; name the node's store_dir, which "
                "has a folder jetstream"
            )
        path = self.root / "lock"
        if path.exists():
            self._fd = files.open_file(path, files.READ_ONLY)
            try:
                files.lock(self._fd)
            except BlockingIOError as error:
                pid = process_of(self._fd)
                files.close(self._fd)
                raise StoreLocked(
                    f"{self.root} is in use by process {pid}; stop it first"
                ) from error
            except OSError as error:
                files.close(self._fd)
                raise unlockable(path, error) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._fd >= 0:
            files.close(self._fd)
