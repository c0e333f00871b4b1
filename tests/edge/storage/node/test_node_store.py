"""The directory of a node: lock, format, foreign files, and clear errors."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.edge.storage.format.errors import FormatError, StoreError, StoreLocked
from headwater.edge.storage.node import node_store
from tests.edge.storage.store_harness import Harness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path)
    yield made
    made.end()


def test_two_nodes_never_share_a_directory(harness: Harness) -> None:
    harness.open()
    other = Harness(harness.directory)
    with pytest.raises(StoreLocked, match=str(os.getpid())):
        other.open()
    other.node = None
    harness.close()
    other.open()
    other.end()


def test_directory_of_nats_server_is_refused(harness: Harness) -> None:
    (harness.directory / "jetstream" / "$G" / "streams" / "S" / "msgs").mkdir(parents=True)
    with pytest.raises(FormatError, match="nats-server"):
        harness.open()
    harness.node = None
    assert os.listdir(harness.directory / "jetstream") == ["$G"]


def test_foreign_files_are_refused(harness: Harness) -> None:
    (harness.directory / "jetstream").mkdir()
    (harness.directory / "jetstream" / "photo.jpg").write_bytes(b"")
    with pytest.raises(FormatError, match="not empty"):
        harness.open()
    harness.node = None


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    harness = Harness(tmp_path / "file")
    with pytest.raises(StoreError, match="could not create"):
        harness.open()
    harness.node = None
    harness.end()


def test_newer_format_is_refused(harness: Harness) -> None:
    from headwater.edge.storage.device.durable_file import TwoCopyFile

    harness.open()
    harness.close()
    file = TwoCopyFile(harness.directory / "jetstream" / "HEADWATER")
    content = file.read()
    assert content is not None
    file.write(content.replace(b'"format": 1', b'"format": 9'))
    with pytest.raises(FormatError, match="newer"):
        harness.open()
    harness.node = None


def test_clean_and_unclean_starts_are_told_apart(harness: Harness) -> None:
    harness.open()
    assert harness.node.clean_start
    harness.create().add_message(b"a", b"")
    harness.commit()
    harness.close()
    harness.open()
    assert harness.node.clean_start
    harness.crash()
    harness.open()
    assert not harness.node.clean_start


def test_many_streams_share_one_log(harness: Harness) -> None:
    harness.open()
    stores = [harness.create(f"S{n}") for n in range(50)]
    for n in range(100):
        for store in stores:
            store.add_message(b"x", b"%d" % n)
        harness.breathe()
    harness.commit()
    assert all(store.committed == 100 for store in stores)
    assert harness.node.log.numbers()["syncs"] < 200
    for stop in (harness.crash, harness.close):
        stop()
        found = harness.open()
        assert len(found) == 50
        assert all(store.messages == 100 for store in found)
        assert all(store.get(77).payload == b"76" for store in found)


def test_a_stop_gives_up_what_its_files_do_not_take(
    harness: Harness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The streams' folder is gone: a few attempts, and then the log keeps what it has. Attempts
    that fail alike are said once a minute."""
    monkeypatch.setattr(node_store, "CLOSE_SECONDS", 3600.0)
    harness.open()
    checkpointer = harness.node.checkpointer
    checkpointer.retry_delay = 0.001
    store = harness.create()
    for n in range(100):
        store.add_message(b"a", b"%d" % n)
    harness.commit()
    shutil.rmtree(harness.node.directory.streams)
    harness.close()
    said = [record.getMessage() for record in caplog.records]
    assert checkpointer.failures == node_store.CLOSE_TRIES > 2
    tries = ["cannot be moved" in each or "cannot be cut off" in each for each in said]
    assert 1 <= sum(tries) <= 2
    assert sum("cannot be cut off" in each for each in said) <= 1
    assert [each for each in said if "messages stay in the log" in each]
    # The attempt that is still due comes when the log is closed, and does nothing.
    checkpointer.wake()


def test_sequences_that_were_passed_twice_for_one_sync_are_not_lost(tmp_path: Path) -> None:
    """Both records of it are alike but for the sequence, and stand side by side."""
    harness = Harness(tmp_path, gathered=True)
    harness.open()
    store = harness.create()
    store.add_message(b"s", b"first")
    harness.commit()
    for sequence in (100, 200):
        store.skip(sequence)
        harness.kernel.turn()
    harness.close()
    (store,) = harness.open()
    assert store.last_seq == 200
    assert harness.node.problems == [] and store.lost == {}
    harness.end()
