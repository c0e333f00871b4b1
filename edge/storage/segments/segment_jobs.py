"""File work on stream segments, for the background thread: write, index, remove."""

from collections.abc import Callable
from pathlib import Path

from headwater.edge.ports import files
from headwater.edge.storage.device.durable_file import replace_file
from headwater.edge.storage.device.file_calls import start_writing

OPEN_MAX = 64
"""Segments that are written at the same time."""

COPY_BYTES = 1 << 20


def write_segments(parts: list[tuple[Path, int, Callable[[int], None]]]) -> None:
    """Put data at the ends of different segments, durably, a number of them at a time: the device
    has them all before the first is waited for, and one commit of the file system serves many.
    A function writes what comes from an offset on to the descriptor that it gets. What was behind
    the offset is cut off first, so that nothing of an earlier attempt can be taken for data. Raises
    OSError, and what the functions raise."""
    for begin in range(0, len(parts), OPEN_MAX):
        some = parts[begin : begin + OPEN_MAX]
        opened: list[int] = []
        try:
            for path, offset, save in some:
                opened.append(files.open_file(path, files.WRITE))
                if files.size_of(opened[-1]) != offset:
                    files.truncate(opened[-1], offset)
                save(opened[-1])
                start_writing(opened[-1])
            for fd in opened:
                files.sync_data(fd)
        finally:
            for fd in opened:
                files.close(fd)
        for path, offset, _ in some:
            if offset == 0:
                files.sync_directory(path.parent)


def cut_segments(parts: list[tuple[Path, int]]) -> None:
    """Take back what an attempt to write left behind, durably: the whole file when it began it.
    Raises OSError."""
    for path, offset in parts:
        if offset and path.exists():
            cut_durably(path, offset)
        elif path.parent.exists():
            files.remove(path, True)
            files.sync_directory(path.parent)


def cut_durably(path: Path, size: int) -> None:
    """Cut a file off; one that was rewritten meanwhile may be shorter. Raises OSError."""
    fd = files.open_file(path, files.EXISTING)
    try:
        files.truncate(fd, min(size, files.size_of(fd)))
        files.sync(fd)
    finally:
        files.close(fd)


def write_again(path: Path, start: int, end: int) -> None:
    """Write what a part of a segment holds over itself, and sync it. After a failed sync it can be
    read as long as the system runs, and another sync succeeds, but it is not on the device. Raises
    OSError."""
    fd = files.open_file(path, files.EXISTING)
    try:
        at = start
        while at < end:
            data = files.read_at(fd, min(end - at, COPY_BYTES), at)
            if not data:
                break
            files.write_all(fd, data, at)
            at += len(data)
        files.sync(fd)
    finally:
        files.close(fd)
    files.sync_directory(path.parent)


def index_path(segment: Path) -> Path:
    return segment.with_suffix(".idx")


def write_index(segment: Path, data: bytes) -> None:
    """Write the index file of a segment."""
    replace_file(index_path(segment), data)


def remove_segments(paths: list[Path]) -> None:
    """Remove segments with their index files, index first."""
    for path in paths:
        files.remove(index_path(path), True)
        files.remove(path, True)
    if paths and paths[0].parent.exists():
        files.sync_directory(paths[0].parent)


def replace_segment(path: Path, data: bytes | bytearray) -> None:
    """Put a rewritten segment in the place of the old one, and remove its index."""
    files.remove(index_path(path), True)
    replace_file(path, bytes(data))
