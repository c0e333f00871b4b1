"""Mapped files without a name: memory of a process that the system may put on a device."""

import mmap
import os
from pathlib import Path


def can_map() -> bool:
    """Whether this system reserves room of a file, and takes memory of a mapped one back."""
    return hasattr(os, "posix_fallocate") and hasattr(mmap, "MADV_DONTNEED")


def map_nameless(folder: Path, size: int) -> mmap.mmap:
    """So many bytes on the device of a folder, which go with the last that uses them. Their room is
    reserved: to write there fails for no want of it. Raises OSError."""
    from tempfile import TemporaryFile

    with TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, size)
        return mmap.mmap(file.fileno(), size)


def leave_memory(mapped: mmap.mmap) -> None:
    """Let the system have the memory. What is in it is read again when somebody uses it."""
    mapped.madvise(mmap.MADV_DONTNEED)
