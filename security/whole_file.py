"""Files of keys and tokens that are there whole, or not at all, whenever power is cut."""

import os
from pathlib import Path

SECRET_MODE = 0o600
FOLDER_MODE = 0o700


def sync_directory(directory: Path) -> None:
    """Have names that were given and taken away outlast a power cut. Raises OSError."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a folder that only its owner enters, and those above it, durably. Raises OSError."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    sync_directory(folder.parent)


def write_whole(path: Path, content: bytes, mode: int = SECRET_MODE) -> None:
    """Put a file in its place in one step: when this returns, a power cut takes neither content nor
    name. Nothing is left of one that could not be written. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    handle = os.open(temporary, flags, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, mode)
            file.write(content)
            file.flush()
            os.fsync(handle)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)
