"""File work on stream segments, for the background thread: write, index, remove."""

from pathlib import Path

from headwater.edge import files
from headwater.edge.storage.durable_file import replace_file


def write_segment(path: Path, offset: int, data: bytes | bytearray) -> None:
    """Put `data` at the end of a segment, durably; what was behind `offset` is cut off first, so
    that nothing of an earlier attempt can be taken for data. Raises OSError."""
    fd = files.open_file(path, files.WRITE)
    try:
        files.truncate(fd, offset)
        files.write_all(fd, data, offset)
        files.sync(fd)
    finally:
        files.close(fd)
    if offset == 0:
        files.sync_directory(path.parent)


def cut_segments(parts: list[tuple[Path, int]]) -> None:
    """Take back what an attempt to write left behind: the whole file when it began it."""
    for path, offset in parts:
        if not path.exists():
            continue
        if offset == 0:
            path.unlink()
        else:
            files.cut_file(path, offset)


def index_path(segment: Path) -> Path:
    return segment.with_suffix(".idx")


def write_index(segment: Path, data: bytes) -> None:
    """Write the index file of a segment."""
    replace_file(index_path(segment), data)


def remove_segments(paths: list[Path]) -> None:
    """Remove segments with their index files, index first."""
    for path in paths:
        index_path(path).unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    if paths and paths[0].parent.exists():
        files.sync_directory(paths[0].parent)


def replace_segment(path: Path, data: bytes | bytearray) -> None:
    """Put a rewritten segment in the place of the old one, and remove its index."""
    index_path(path).unlink(missing_ok=True)
    replace_file(path, bytes(data))
