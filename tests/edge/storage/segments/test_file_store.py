"""What only a file store does: restarts, checkpointing, compaction, damage."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.edge.storage.device.durable_file import TwoCopyFile
from headwater.edge.storage.format.errors import Damaged
from tests.edge.storage.store_harness import Harness, contents, segment_bytes


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path)
    yield made
    made.end()


def fill(harness: Harness, store: object, count: int, size: int = 100) -> None:
    for n in range(count):
        store.add_message(b"s.%d" % (n % 3), b"%08d" % n + b"x" * size)
        if n % 50 == 49:
            harness.breathe()
    harness.commit()


def test_committed_grows_only_when_durable(harness: Harness) -> None:
    harness.open()
    store = harness.create()
    store.add_message(b"a", b"1")
    assert (store.last_seq, store.committed) == (1, 0)
    assert store.get(1).payload == b"1"
    harness.commit()
    assert store.committed == 1


def test_old_messages_are_read_from_segments(harness: Harness) -> None:
    harness.open()
    store = harness.create()
    fill(harness, store, 5000)
    harness.settle()
    assert len(store.segments) > 5
    assert len(harness.node.log.live) <= 2
    for n in (1, 2, 700, 1, 4999, 5000):
        assert store.get(n).payload[:8] == b"%08d" % (n - 1)


def test_work_queue_leaves_little_behind(harness: Harness) -> None:
    """Messages that are gone before their log segment is checkpointed are never written twice."""
    harness.open()
    store = harness.create()
    for n in range(1, 20001):
        store.add_message(b"job", b"x" * 100)
        if n > 50:
            assert store.delete(n - 50)
        if n % 50 == 0:
            harness.breathe()
    harness.commit()
    harness.settle()
    harness.until(lambda: segment_bytes(store) < 64 << 10)
    harness.close()
    (store,) = harness.open()
    assert (store.first_seq, store.last_seq, store.messages) == (19951, 20000, 50)


def test_head_segments_are_removed(harness: Harness) -> None:
    harness.open()
    store = harness.create()
    fill(harness, store, 5000)
    harness.settle()
    store.purge(None, 4900)
    harness.commit()
    harness.until(lambda: len(list(store.directory.glob("*.seg"))) <= 2)
    assert contents(store).keys() == set(range(4900, 5001))


def test_mostly_dead_segments_are_rewritten(harness: Harness) -> None:
    harness.open()
    store = harness.create()
    fill(harness, store, 5000)
    harness.settle()
    before = segment_bytes(store)
    for n in range(1, 5001):
        if n % 10:
            store.delete(n)
        if n % 500 == 0:
            harness.commit()
    harness.until(lambda: harness.node.compactor.rewritten >= 5)
    harness.settle()
    want = set(range(10, 5001, 10))
    assert contents(store).keys() == want
    # The node's thread may still remove what was rewritten.
    harness.until(lambda: segment_bytes(store) < before / 2)
    harness.crash()
    (store,) = harness.open()
    assert harness.node.problems == []
    assert contents(store).keys() == want


def test_last_sequence_survives_emptiness(harness: Harness) -> None:
    harness.open()
    store = harness.create(first_seq=1000)
    for _ in range(3):
        store.add_message(b"a", b"")
    assert store.last_seq == 1002
    store.purge()
    for restart in (harness.crash, harness.close, harness.crash, harness.close):
        restart()
        (store,) = harness.open()
        assert (store.first_seq, store.last_seq, store.messages) == (1003, 1002, 0)
    assert store.add_message(b"a", b"") == 1003


def test_large_messages_get_a_segment_of_their_own(harness: Harness) -> None:
    harness.open()
    store = harness.create()
    for n in range(6):
        store.add_message(b"big", bytes([n]) * 300_000)
        harness.commit()
    harness.settle()
    harness.close()
    (store,) = harness.open()
    for n in range(6):
        assert store.get(n + 1).payload == bytes([n]) * 300_000


def test_states_come_back_and_outlive_their_segment(harness: Harness) -> None:
    harness.open()
    log = harness.node.log
    store = harness.create()
    log.put_state(b"c", b"one", b"base")
    log.add_delta(b"c", b"one", b"+1")
    log.put_state(b"c", b"two", b"gone")
    log.delete_state(b"c", b"two")
    log.put_state(b"c", b"live", b"old")
    log.encode_with(b"c", b"live", lambda: b"new")
    fill(harness, store, 5000)
    harness.settle()
    want = {b"one": (b"base", [b"+1"]), b"live": (b"new", [])}
    for restart in (harness.crash, harness.close):
        restart()
        harness.open()
        assert harness.node.log.states(b"c") == want


def test_deleted_streams_stay_deleted(harness: Harness) -> None:
    harness.open()
    gone, kept = harness.create("gone"), harness.create("kept")
    fill(harness, gone, 1000)
    fill(harness, kept, 10)
    harness.node.log.put_state(gone.incarnation.encode(), b"k", b"v")
    harness.node.delete_stream(gone)
    harness.commit()
    harness.until(lambda: not gone.directory.exists())
    assert harness.node.store_bytes == kept.bytes
    harness.crash()
    (store,) = harness.open()
    assert store.incarnation == kept.incarnation
    assert harness.node.problems == []
    assert harness.node.log.states(gone.incarnation.encode()) == {}


def test_interval_releases_after_the_write(tmp_path: Path) -> None:
    harness = Harness(tmp_path, interval=3600.0)
    harness.open()
    store = harness.create()
    harness.commit()
    before = harness.node.log.numbers()["syncs"]
    for n in range(10):
        store.add_message(b"a", b"%d" % n)
    harness.until(lambda: store.committed == 10)
    assert harness.node.log.numbers()["syncs"] == before
    assert harness.node.log.unsynced > 0
    harness.crash()
    (store,) = harness.open()
    assert store.last_seq == 10
    harness.end()


def test_meta_is_kept_and_one_bad_copy_is_harmless(harness: Harness) -> None:
    harness.open()
    store = harness.create()
    harness.node.update_meta(store, b"second")
    path = store.directory / "meta"
    harness.crash()
    for at in (5, 4096 + 40):
        data = bytearray(path.read_bytes())
        data[at] ^= 4
        path.write_bytes(bytes(data))
        harness.open()
        assert harness.node.meta_of(next(iter(harness.node._stores.values()))) == b"second"
        harness.node.update_meta(next(iter(harness.node._stores.values())), b"second")
        harness.crash()


def test_a_stream_without_meta_goes_to_quarantine(harness: Harness) -> None:
    harness.open()
    bad, good = harness.create("bad"), harness.create("good")
    fill(harness, bad, 1000)
    fill(harness, good, 5)
    harness.settle()
    harness.crash()
    TwoCopyFile(bad.directory / "meta").replace(b"newer than what the log has, and nonsense")
    (store,) = harness.open()
    assert store.incarnation == good.incarnation
    kept = list((harness.directory / "jetstream" / "quarantine").iterdir())
    assert any(item.is_dir() and list(item.glob("*.seg")) for item in kept)
    assert any(item.name.endswith(".reason") for item in kept)
    assert harness.node.problems


def test_damage_costs_one_message(harness: Harness) -> None:
    harness.open()
    store = harness.create()
    fill(harness, store, 3000)
    harness.settle()
    segment = store.segments[1]
    sequence = segment.first + 3
    data = bytearray(segment.path.read_bytes())
    at = data.find(b"%08d" % (sequence - 1))
    data[at] ^= 1
    segment.path.write_bytes(bytes(data))
    with pytest.raises(Damaged):
        store.get(sequence)
    assert list(store.lost) == [sequence]
    with pytest.raises(Damaged):
        store.get(sequence)
    assert store.get(sequence - 1) and store.get(sequence + 1)
    assert store.messages == 2999
    for restart in (harness.crash, harness.close):
        harness.commit()
        restart()
        (store,) = harness.open()
        assert list(store.lost) == [sequence]
        assert len([n for n in range(1, 3001) if n != sequence and store.get(n)]) == 2999
