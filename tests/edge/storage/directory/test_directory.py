"""A directory that a store cannot use is refused, and the refusal says what to do."""

from pathlib import Path

import pytest

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
