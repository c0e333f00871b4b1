"""The disk of the groups: what survives a power cut, rot and a clean stop."""

from pathlib import Path

import pytest

from headwater.edge.ports.ports import Disk
from headwater.edge.ports.twins.chance import SeededRandom
from headwater.edge.ports.twins.disk import TwinDisk
from headwater.hub.journal import journal as journal_module
from headwater.hub.journal.journal import Journal
from headwater.hub.raft.config import Config
from headwater.hub.raft.entry import Entry
from headwater.hub.raft.hard_state import HardState
from headwater.hub.raft.ready import Ready, bootstrap
from headwater.hub.raft.snapshot import Snapshot
from headwater.hub.stored.directory_disk import DirectoryDisk

CONFIG = Config({1: 1, 2: 1, 3: 1})


def entries(first: int, last: int, term: int = 2) -> list[Entry]:
    return [Entry(term, index, 0, b"%d/%d" % (term, index)) for index in range(first, last + 1)]


def begin(disk: Disk) -> Journal:
    journal = Journal(disk, 0)
    journal.create(1, bootstrap(CONFIG, 1))
    return journal


def append(journal: Journal, batch: list[Entry], hard: HardState | None = None) -> None:
    before = 1 if batch and batch[0].index == 2 else 2
    journal.write([(1, Ready(1, hard_state=hard, entries=batch, before_term=before))])
    journal.sync()


@pytest.mark.parametrize("kind", ["twin", "system"])
def test_everything_is_there_after_a_clean_stop(kind: str, tmp_path: Path) -> None:
    disk: Disk = TwinDisk() if kind == "twin" else DirectoryDisk(tmp_path)
    journal = begin(disk)
    append(journal, entries(2, 9), HardState(2, 3, 1, 1))
    append(journal, entries(8, 10, term=3))
    journal.record_clean_stop()
    found = Journal(disk, 0).start
    assert found.clean and not found.problems
    assert found.groups[1].clean
    assert found.groups[1].hard_state == HardState(2, 3, 1, 1)
    assert found.groups[1].entries == entries(2, 7) + entries(8, 10, term=3)
    assert not Journal(disk, 0).start.clean, "the record counts once"
    if isinstance(disk, DirectoryDisk):
        disk.close()


def test_a_clean_stop_record_is_worth_nothing_beside_an_older_hard_state() -> None:
    """A lying disk may keep the log and the mark, and lose what was written to the hard-state
    file."""
    disk = TwinDisk()
    journal = begin(disk)
    append(journal, entries(2, 9), HardState(2, 3, 1, 1))
    older = disk.read("raft.hard")
    append(journal, [], HardState(5, 2, 1, 1))
    journal.record_clean_stop()
    disk.write("raft.hard", 0, older)
    assert not Journal(disk, 0).start.clean


@pytest.mark.parametrize("seed", range(60))
def test_a_power_cut_loses_nothing_that_was_synced(seed: int) -> None:
    disk, chance = TwinDisk(), SeededRandom(seed)
    journal = begin(disk)
    append(journal, entries(2, 5), HardState(2, 3, 1, 1))
    journal.write([(1, Ready(2, hard_state=HardState(3, 1, 1, 1), entries=entries(4, 40, term=3)))])
    disk.power_cut(chance)
    found = Journal(disk, 0).start
    assert not found.clean and not found.groups[1].clean
    assert found.groups[1].hard_state in (HardState(2, 3, 1, 1), HardState(3, 1, 1, 1))
    kept = found.groups[1].entries
    assert kept in (entries(2, 5), entries(2, 3) + entries(4, 40, term=3))
    assert not found.problems, "a torn tail is no damage"


def test_the_number_of_a_start_outlives_a_power_cut() -> None:
    """Also after a clean start, of which nothing else is written, and with a clock set back."""
    disk = TwinDisk()
    begin(disk).record_clean_stop()
    second = Journal(disk, 0)
    assert second.start.clean
    disk.power_cut(SeededRandom(1))
    assert Journal(disk, 0).boot > second.boot


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_what_failed_syncs_left_in_memory_is_made_durable(failures: int) -> None:
    """After a sync that failed, content reads as written and is not on the platter; starts that
    fail in the same way begin segments of their own behind it."""
    disk = TwinDisk()
    journal = begin(disk)
    append(journal, entries(2, 5), HardState(2, 3, 1, 1))
    for attempt in range(failures):
        disk.sync_fails = True
        with pytest.raises(OSError, match="cannot be written"):
            append(journal, entries(6, 9)) if not attempt else Journal(disk, 0)
    assert Journal(disk, 0).start.groups[1].entries == entries(2, 9)
    disk.power_cut(SeededRandom(1))
    found = Journal(disk, 0).start
    assert found.groups[1].entries == entries(2, 9) and not found.problems


def test_every_flipped_bit_is_noticed_and_nothing_wrong_is_given_out() -> None:
    template = TwinDisk()
    journal = begin(template)
    for index in range(2, 8):
        append(journal, entries(index, index), HardState(2, index % 3, 1, 1))
    journal.record_clean_stop()
    right = entries(2, 7)
    for name in template.names():
        data = template.read(name)
        for offset in range(len(data)):
            disk = TwinDisk()
            for other in template.names():
                disk.write(other, 0, template.read(other))
                disk.sync(other)
            disk.flip(name, offset, offset % 8)
            found = Journal(disk, 0).start
            harmless = not data[max(0, offset - 8) : offset + 9].strip(b"\0")
            restored = found.groups.get(1)
            if restored is not None and restored.clean and not harmless:
                assert restored.entries == right, (name, offset)
                assert restored.hard_state == HardState(2, 7 % 3, 1, 1), (name, offset)
            if restored is not None:
                assert restored.entries == right[: len(restored.entries)], (name, offset)


def test_segments_go_when_a_snapshot_covers_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 1000)
    disk = TwinDisk()
    journal = begin(disk)
    for index in range(2, 60):
        append(journal, entries(index, index))
    segments = len([name for name in disk.names() if name.endswith(".log")])
    assert segments > 3
    assert journal.reclaim() == 0
    journal.save_snapshot(1, Snapshot(50, 2, CONFIG, b"state"))
    assert journal.reclaim() > 0
    disk.power_cut(SeededRandom(1))
    found = Journal(disk, 0).start.groups[1]
    assert found.snapshot == Snapshot(50, 2, CONFIG, b"state")
    assert found.entries == entries(51, 59)


def test_entries_of_another_log_are_not_put_behind_a_snapshot() -> None:
    disk = TwinDisk()
    journal = begin(disk)
    append(journal, entries(2, 20))
    journal.save_snapshot(1, Snapshot(10, 7, CONFIG, b"of another leader"))
    assert Journal(disk, 0).start.groups[1].entries == []


def test_what_follows_a_snapshot_is_kept_though_the_log_never_heard_of_it() -> None:
    """The power goes when the snapshot has its name, and before the log says so."""
    disk = TwinDisk()
    journal = begin(disk)
    append(journal, entries(2, 20))
    journal.save_snapshot(1, Snapshot(10, 7, CONFIG, b"of another leader"))
    disk.power_cut(SeededRandom(1))
    journal = Journal(disk, 0)
    journal.write([(1, Ready(1, entries=entries(11, 13, term=7), before_term=7))])
    journal.sync()
    disk.power_cut(SeededRandom(2))
    start = Journal(disk, 0).start
    assert start.problems == []
    assert start.groups[1].entries == entries(11, 13, term=7)


def test_a_group_can_be_erased() -> None:
    disk = TwinDisk()
    journal = begin(disk)
    append(journal, entries(2, 5), HardState(2, 3, 1, 1))
    journal.erase(1)
    journal.record_clean_stop()
    assert Journal(disk, 0).start.groups == {}


def test_a_full_disk_is_an_error() -> None:
    disk = TwinDisk()
    journal = begin(disk)
    disk.full = True
    with pytest.raises(OSError, match="no room"):
        append(journal, entries(2, 3))


def test_what_a_failed_sync_left_in_memory_is_written_again() -> None:
    """It reads as written until the power goes, and no later sync of the file would write it."""
    disk = TwinDisk()
    journal = begin(disk)
    append(journal, entries(2, 5), HardState(2, 3, 1, 1))
    disk.sync_fails = True
    with pytest.raises(OSError, match="cannot be written"):
        append(journal, entries(6, 9))
    found = Journal(disk, 0).start.groups[1].entries
    disk.power_cut(SeededRandom(1))
    assert found == entries(2, 9)
    assert Journal(disk, 0).start.groups[1].entries == found


def test_a_disk_that_cannot_be_read_is_an_error() -> None:
    disk = TwinDisk()
    begin(disk)
    disk.unreadable = True
    with pytest.raises(OSError, match="cannot be read"):
        Journal(disk, 0)


def test_runs_are_not_joined_over_a_lost_one() -> None:
    """The run between them replaced a tail: what is left is the log of an earlier moment."""
    disk = TwinDisk()
    journal = begin(disk)
    append(journal, entries(2, 9))
    at = journal.offset
    append(journal, entries(7, 9, term=3))
    journal.write([(1, Ready(2, entries=entries(10, 10, term=3), before_term=3))])
    journal.sync()
    name = f"raft-{journal.number:08d}.log"
    disk.flip(name, at + 80, 0)
    start = Journal(disk, 0).start
    assert start.groups[1].entries == entries(2, 9)
    assert not start.clean and start.problems
