"""Open files of disks in memory."""

import gc
import weakref

import pytest

from headwater.edge.ports import files
from headwater.edge.ports.allocation import Allocation
from headwater.edge.ports.twins.files import TwinFiles


def test_a_disk_that_nobody_has_is_gone_with_its_open_files() -> None:
    disk = TwinFiles()
    allocation = Allocation(disk.root)
    files.track_allocation(allocation)
    fd = files.open_file(disk.root / "file", files.REPLACE)
    files.write_all(fd, b"content", 0)
    assert files.read_at(fd, 7, 0) == b"content"
    gone = weakref.ref(disk)
    del disk, allocation
    gc.collect()
    assert gone() is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        files.read_at(fd, 7, 0)


def test_an_open_file_is_known_by_its_new_name() -> None:
    folder = TwinFiles().root / "data"
    files.new_directory(folder)
    allocation = Allocation(folder)
    files.track_allocation(allocation)
    old, new = folder / "old", folder / "new"
    fd = files.open_file(old, files.REPLACE)
    files.rename(old, new)
    files.write_all(fd, bytes(10_000), 0)
    assert allocation.bytes_of(new) == 3 * files.BLOCK
    assert allocation.bytes_of(old) == 0
    files.close(fd)
    files.remove(new)
    assert allocation.bytes_of(new) == 0
