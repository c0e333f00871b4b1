"""Slots of the log that a job beside the loop still writes to."""

from pathlib import Path

import pytest

from headwater.edge.storage.log.log_files import LogFiles, LogSlot

SEGMENT = 65536


@pytest.fixture
def log_files(tmp_path: Path) -> LogFiles:
    directory = tmp_path / "store" / "log"
    directory.mkdir(parents=True)
    made = LogFiles(directory, SEGMENT)
    made.load_list(False)
    return made


def slot_in_use(log_files: LogFiles) -> LogSlot:
    slot = log_files.create(SEGMENT)
    log_files.pin(slot)
    log_files.discard(slot)
    assert slot.path.exists(), "its job goes on"
    return slot


def test_a_slot_goes_when_its_job_is_over(log_files: LogFiles) -> None:
    slot = slot_in_use(log_files)
    log_files.unpin(slot)
    assert not slot.path.exists()
    log_files.close()


def test_a_job_may_end_later_than_the_node(log_files: LogFiles) -> None:
    slot = slot_in_use(log_files)
    log_files.close()
    log_files.unpin(slot)
    assert slot.path.exists(), "nothing changes after the end"
