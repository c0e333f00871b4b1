"""A node that was killed knows that its machine ran on, and is not fooled by copies."""

import contextlib
import shutil
from pathlib import Path

from headwater.hub.stored.directory_disk import DirectoryDisk
from headwater.hub.stored.run_record import RunRecord, run_of_machine
from tests.small_device import small_device

RUN = b"a run"


def record(folder: Path, run: bytes = RUN) -> RunRecord:
    return RunRecord(DirectoryDisk(folder), run)


def test_the_system_names_its_run() -> None:
    assert run_of_machine() and run_of_machine() == run_of_machine()


def test_the_same_start_in_the_same_run(tmp_path: Path) -> None:
    folder = tmp_path / "raft"
    assert not record(folder).continues(0)
    record(folder).begin(7)
    assert record(folder).continues(7)
    assert not record(folder).continues(6), "of another start"
    assert not record(folder, b"another run").continues(7)
    assert not record(folder, b"").continues(7)
    record(folder).begin(8)
    assert record(folder).continues(8)


def test_where_the_run_is_unknown_nothing_is_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "raft"
    record(folder, b"").begin(7)
    assert DirectoryDisk(folder).names() == []


def test_a_copy_is_another_folder(tmp_path: Path) -> None:
    folder, copy = tmp_path / "raft", tmp_path / "copy"
    record(folder).begin(7)
    shutil.copytree(folder, copy)
    assert not record(copy).continues(7)
    shutil.rmtree(folder)
    copy.rename(folder)
    assert not record(folder).continues(7)


def test_a_copy_over_the_files_is_seen(tmp_path: Path) -> None:
    folder, copy = tmp_path / "raft", tmp_path / "copy"
    record(folder).begin(7)
    shutil.copytree(folder, copy)
    for path in copy.iterdir():
        shutil.copy2(path, folder / path.name)
    assert not record(folder).continues(7)


def test_a_torn_record_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "raft"
    record(folder).begin(7)
    whole = (folder / "run").read_bytes()
    (folder / "run").write_bytes(whole[:-1])
    assert not record(folder).continues(7)
    (folder / "run").write_bytes(whole)
    assert record(folder).continues(7)
    (folder / "run.mark").unlink()
    assert not record(folder).continues(7)


def test_a_full_disk_ends_no_start(tmp_path: Path) -> None:
    """Nothing is recorded then: the next start asks the others."""
    (tmp_path / "mount").mkdir()
    with small_device(tmp_path / "mount", 1) as device:
        folder = device / "raft"
        made, filler = record(folder), device / "foreign"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        made.begin(7)
        assert not record(folder).continues(7)
        filler.unlink()
        record(folder).begin(8)
        assert record(folder).continues(8)
