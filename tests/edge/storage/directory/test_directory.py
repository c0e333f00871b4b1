"""A directory that a store cannot use is refused, and the refusal says what to do."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.edge.ports import files
from headwater.edge.storage.directory.directory import StoreDirectory
from headwater.edge.storage.directory.store_lock import StoreLock
from headwater.edge.storage.format.errors import FormatError, StoreError, StoreLocked


def test_a_directory_without_a_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="name the node's store_dir"), StoreLock(tmp_path):
        pass


def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    letter = tmp_path / "jetstream/letter"
    letter.parent.mkdir()
    letter.write_bytes(b"dear")
    with pytest.raises(FormatError, match="choose another store_dir, or move away"):
        StoreDirectory(tmp_path).open()
    assert letter.read_bytes() == b"dear"
    assert list(letter.parent.iterdir()) == [letter]


def test_a_directory_in_use_names_the_process(tmp_path: Path) -> None:
    first = StoreDirectory(tmp_path)
    first.open()
    try:
        with pytest.raises(StoreLocked, match=r"process \d+; stop it, or choose another"):
            StoreDirectory(tmp_path).open()
    finally:
        first.close()


@pytest.fixture
def btrfs(tmp_path: Path) -> Iterator[Path]:
    """An empty one, on a device in a file."""
    if os.geteuid() or not shutil.which("mkfs.btrfs"):
        pytest.skip("it takes root and mkfs.btrfs")
    image, place = tmp_path / "image", tmp_path / "btrfs"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(128 << 20)
    subprocess.run(["mkfs.btrfs", "-q", str(image)], check=True, capture_output=True)
    if subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=False).returncode:
        pytest.skip("no btrfs can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_what_copies_on_write_is_asked_to_overwrite_the_log_in_place(btrfs: Path) -> None:
    directory = StoreDirectory(btrfs)
    directory.open()
    try:
        for folder in (directory.log, directory.streams):
            path = folder / "file"
            path.write_bytes(b"x")
            with path.open("rb") as file:
                found = fcntl.ioctl(file, files.GET_FLAGS, bytes(files.FLAGS.size))
            assert files.FLAGS.unpack(found)[0] & files.NO_COW
    finally:
        directory.close()
