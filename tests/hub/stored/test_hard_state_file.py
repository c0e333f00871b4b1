"""Two copies of each group's hard state, and what is made of a bad one."""

from pathlib import Path

import pytest

from headwater.edge.ports.twins.files import TwinFiles
from headwater.hub.raft.model.hard_state import HardState
from headwater.hub.stored.directory_disk import DirectoryDisk
from headwater.hub.stored.hard_state_file import COPY_BYTES, NAME, HardStateFile

FIRST, SECOND, THIRD = HardState(2, 1, 1, 1), HardState(3, 2, 4, 1), HardState(4, 3, 9, 1)


def begin(root: Path) -> HardStateFile:
    found = HardStateFile(DirectoryDisk(root))
    for hard in (FIRST, SECOND):
        found.write(7, hard)
    found.write(8, THIRD)
    found.sync()
    return found


@pytest.mark.parametrize("kind", ["twin", "system"])
def test_the_newest_copies_are_found(kind: str, tmp_path: Path) -> None:
    root = tmp_path if kind == "system" else TwinFiles().root / "data"
    made = begin(root)
    again = HardStateFile(DirectoryDisk(root))
    assert again.found == {7: SECOND, 8: THIRD} and not again.suspect
    assert again.digest() == made.digest()


def test_what_is_written_after_a_start_is_the_newest(tmp_path: Path) -> None:
    begin(tmp_path)
    for hard in (THIRD, FIRST, SECOND):
        again = HardStateFile(DirectoryDisk(tmp_path))
        again.write(7, hard)
        again.sync()
        assert HardStateFile(DirectoryDisk(tmp_path)).found == {7: hard, 8: THIRD}


def test_any_flipped_bit_raises_a_suspicion_and_gives_out_nothing_wrong(tmp_path: Path) -> None:
    begin(tmp_path)
    whole = (tmp_path / NAME).read_bytes()
    used = len(FIRST.encode()) + 22
    for offset in range(used):
        for copy, kept in ((0, FIRST), (1, SECOND)):
            data = bytearray(whole)
            # The second write went to the first place: generations begin at 1.
            data[(1 - copy) * COPY_BYTES + offset] ^= 1 << offset % 8
            (tmp_path / NAME).write_bytes(data)
            found = HardStateFile(DirectoryDisk(tmp_path))
            assert found.suspect, (copy, offset)
            assert found.found[7] == (SECOND if kept is FIRST else FIRST)
            assert found.found[8] == THIRD


def test_a_group_that_is_gone_gives_its_place_to_another(tmp_path: Path) -> None:
    found = begin(tmp_path)
    found.erase(7)
    found.write(9, FIRST)
    found.sync()
    again = HardStateFile(DirectoryDisk(tmp_path))
    assert again.found == {8: THIRD, 9: FIRST} and not again.suspect
    assert len((tmp_path / NAME).read_bytes()) <= 4 * COPY_BYTES
