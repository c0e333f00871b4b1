"""Files that somebody shortened, emptied or deleted: told, nothing given out twice, rest kept."""

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.edge.storage.directory.metas import METAS_OWNER
from headwater.edge.storage.format.errors import FormatError, StoreError
from headwater.edge.storage.segments.loss import Loss
from tests.edge.storage.recovery.test_recovery import (
    append,
    contents_or_lost,
    fast_directory,
    message,
)
from tests.edge.storage.store_harness import Harness


@pytest.fixture
def harness() -> Iterator[Harness]:
    path = fast_directory()
    made = Harness(path)
    made.open()
    yield made
    made.end()
    shutil.rmtree(path)


def fill(harness: Harness, store: object, first: int, last: int) -> None:
    """One commit per few messages, so that footers are everywhere."""
    for n in range(first, last + 1):
        append(store, n)
        if n % 5 == 0:
            harness.breathe()
    harness.commit()


def told(harness: Harness, *words: str) -> bool:
    """Whether one of the problems has all of the words."""
    return any(all(word in str(each) for word in words) for each in harness.node.problems)


def check(harness: Harness, acknowledged: int) -> dict[int, object]:
    """Whatever is left is right, and the next sequence was never given out."""
    store = next(iter(harness.node._stores.values()))
    got = contents_or_lost(store)
    assert all(got[n] == message(n) for n in got)
    assert not got.keys() & store.lost.keys()
    assert store.last_seq >= acknowledged
    last = store.last_seq
    assert store.add_message(b"new", b"x") == last + 1
    harness.commit()
    harness.crash()
    (store,) = harness.open()
    again = contents_or_lost(store)
    assert again.pop(last + 1)[0] == b"new"
    assert again == got
    assert store.last_seq == last + 1, "sequences are left out only once"
    return got


def test_shortened_slot_in_use(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    fill(harness, harness.create(), 1, 200)
    slot = harness.node.log.active.slot.path
    used = harness.node.log.progress.position()["end"]
    harness.crash()
    os.truncate(slot, used // 2)
    with caplog.at_level(logging.WARNING):
        harness.open()
    assert told(harness, slot.name, str(used // 2), "65536", "kept up to")
    assert told(harness, "A > S", "messages are lost")
    assert slot.name in caplog.text
    got = check(harness, 200)
    assert got.keys() == set(range(1, max(got) + 1))
    assert len(got) > 80


@pytest.mark.parametrize("size", [0, 100, 511, 512, 600])
def test_slot_cut_to_almost_nothing(harness: Harness, size: int) -> None:
    fill(harness, harness.create(), 1, 50)
    slot = harness.node.log.active.slot.path
    harness.crash()
    os.truncate(slot, size)
    harness.open()
    assert told(harness, slot.name, f"{size} of 65536 bytes")
    check(harness, 50)


def test_slot_in_use_deleted(harness: Harness) -> None:
    store = harness.create()
    fill(harness, store, 1, 900)
    slot = harness.node.log.active.slot.path
    harness.crash()
    slot.unlink()
    harness.open()
    assert told(harness, slot.name, "missing")
    got = check(harness, 900)
    assert len(got) > 200


def test_whole_log_deleted(harness: Harness) -> None:
    store = harness.create()
    fill(harness, store, 1, 900)
    harness.crash()
    shutil.rmtree(harness.directory / "jetstream" / "log")
    harness.open()
    assert told(harness, "missing")
    check(harness, 900)


def test_log_and_list_deleted(harness: Harness) -> None:
    fill(harness, harness.create(), 1, 50)
    harness.crash()
    shutil.rmtree(harness.directory / "jetstream" / "log")
    (harness.directory / "jetstream" / "slots").unlink()
    harness.open()
    assert told(harness, "the log and its list are missing")
    check(harness, 50)


@pytest.mark.parametrize("content", [b"", b"garbage" * 2000, None])
def test_damaged_list_of_slots(harness: Harness, content: bytes | None) -> None:
    fill(harness, harness.create(), 1, 20)
    harness.crash()
    path = harness.directory / "jetstream" / "slots"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    (store,) = harness.open()
    assert told(harness, "slots", "made again")
    assert store.last_seq == 20
    harness.crash()
    harness.open()
    assert harness.node.problems == []


def test_a_mirror_leaves_nothing_out(harness: Harness) -> None:
    harness.options.numbered_elsewhere = lambda meta: True
    fill(harness, harness.create(), 1, 200)
    slot = harness.node.log.active.slot.path
    used = harness.node.log.progress.position()["end"]
    harness.crash()
    os.truncate(slot, used // 2)
    (store,) = harness.open()
    assert 80 < store.last_seq < 110
    assert told(harness, slot.name)


def test_unfinished_slot_is_no_damage(harness: Harness) -> None:
    fill(harness, harness.create(), 1, 20)
    harness.crash()
    log = harness.directory / "jetstream" / "log"
    (log / "slot-0009.log.new").write_bytes(bytes(100))
    with (log / "slot-0010.log").open("wb") as file:
        file.truncate(65536)
    (store,) = harness.open()
    assert harness.node.problems == []
    assert store.last_seq == 20
    assert not (log / "slot-0009.log.new").exists()


def stored(harness: Harness) -> tuple[Path, list[Path]]:
    """A stream with several segments and a log; its directory and segments."""
    store = harness.create()
    fill(harness, store, 1, 3000)
    harness.settle()
    harness.crash()
    paths = [segment.path for segment in store.segments]
    assert len(paths) >= 3
    return store.directory, paths


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def halved(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_by_8(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 8)


def deleted(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("harm", [emptied, halved, cut_by_8, deleted])
def test_damaged_stream_segment(
    harness: Harness, harm: Callable[[Path], None], which: int, indexed: bool
) -> None:
    _, paths = stored(harness)
    if not indexed:
        paths[which].with_suffix(".idx").unlink(missing_ok=True)
    harm(paths[which])
    (store,) = harness.open()
    assert told(harness, paths[which].name), harness.node.problems
    if harm is not cut_by_8:
        assert store.lost
        assert told(harness, "A > S", "messages are lost")
    assert store.last_seq == 3000
    got = contents_or_lost(store)
    assert set(range(1, 3001)) - got.keys() == store.lost.keys()
    assert len(got) > 1000
    assert check(harness, 3000) == got


def test_both_segments_and_index_of_a_clean_stop(harness: Harness) -> None:
    store = harness.create()
    fill(harness, store, 1, 300)
    harness.close()
    for path in store.directory.glob("0*"):
        path.unlink()
    (store,) = harness.open()
    assert store.last_seq == 300
    assert store.lost.keys() == set(range(1, 301))
    assert told(harness, "000001.seg", "missing")
    check(harness, 300)


@pytest.mark.parametrize("harm", [emptied, halved, cut_by_8])
def test_damaged_index(harness: Harness, harm: Callable[[Path], None]) -> None:
    store = harness.create()
    fill(harness, store, 1, 300)
    harness.close()
    path = store.segments[0].path.with_suffix(".idx")
    harm(path)
    (store,) = harness.open()
    assert told(harness, path.name, "damaged", "its segment is read instead")
    assert len(check(harness, 300)) == 300


def test_unfinished_first_segment_is_no_damage(harness: Harness) -> None:
    store = harness.create()
    fill(harness, store, 1, 20)
    harness.crash()
    (store.directory / "000001.seg").write_bytes(b"HWSG" + bytes(96))
    for stop in (harness.crash, harness.crash, harness.close):
        (store,) = harness.open()
        assert harness.node.problems == []
        stop()
    (store,) = harness.open()
    assert harness.node.problems == []
    assert len(contents_or_lost(store)) == 20


@pytest.mark.parametrize("harm", [emptied, deleted])
def test_identity_of_the_store(harness: Harness, harm: Callable[[Path], None]) -> None:
    fill(harness, harness.create(), 1, 20)
    harness.crash()
    path = harness.directory / "jetstream" / "HEADWATER"
    whole = path.read_bytes()
    harm(path)
    (store,) = harness.open()
    assert store.last_seq == 20
    assert told(harness, "HEADWATER", "missing or damaged in both copies", "made again")
    harness.crash()
    path.write_bytes(whole[:4096])
    (store,) = harness.open()
    assert len(contents_or_lost(store)) == 20
    assert told(harness, "HEADWATER", "a copy was damaged")
    assert path.read_bytes()[4096:] == path.read_bytes()[:4096]


def test_identity_of_another_store(harness: Harness, tmp_path: Path) -> None:
    fill(harness, harness.create(), 1, 20)
    harness.close()
    other = Harness(tmp_path / "other")
    other.open()
    other.close()
    other.end()
    path = harness.directory / "jetstream" / "HEADWATER"
    path.write_bytes((tmp_path / "other" / "jetstream" / "HEADWATER").read_bytes())
    for problems in (1, 0):
        (store,) = harness.open()
        assert len(contents_or_lost(store)) == 20
        assert len(harness.node.problems) == problems
        harness.close()


def test_nothing_tells_whose_a_store_is(harness: Harness) -> None:
    """Never a new identity over what may be read with the old one."""
    fill(harness, harness.create(), 1, 20)
    harness.crash()
    root = harness.directory / "jetstream"
    (root / "HEADWATER").unlink()
    for path in (*root.glob("log/slot*"), *root.glob("streams/*/*.seg")):
        path.write_bytes(bytes(512) + path.read_bytes()[512:])
    with pytest.raises(FormatError, match="restore it from a backup"):
        harness.open()
    assert not (root / "HEADWATER").exists()
    harness.node = None


def test_lock_that_cannot_be_taken(harness: Harness) -> None:
    harness.close()
    path = harness.directory / "jetstream" / "lock"
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreError, match="lock"):
        harness.open()
    harness.node = None


@pytest.mark.parametrize("harm", [emptied, deleted])
def test_meta_of_a_stream(harness: Harness, harm: Callable[[Path], None]) -> None:
    store = harness.create()
    fill(harness, store, 1, 20)
    harness.crash()
    harm(store.directory / "meta")
    (store,) = harness.open()
    assert told(harness, "meta", "the log has it")
    assert len(contents_or_lost(store)) == 20
    assert not store.lost


@pytest.mark.parametrize("harm", [emptied, deleted])
def test_both_copies_of_what_a_stream_is(harness: Harness, harm: Callable[[Path], None]) -> None:
    """A log without a copy, as of earlier versions, and a bad file."""
    store = harness.create()
    fill(harness, store, 1, 20)
    harness.node.log.delete_state(METAS_OWNER, store.incarnation.encode())
    harness.commit()
    harness.crash()
    harm(store.directory / "meta")
    assert harness.open() == []
    assert told(harness, "meta", "moved to")
    assert told(harness, "A > S", "is not served")
    assert not store.directory.exists()
    assert any((harness.directory / "jetstream" / "quarantine").iterdir())


def test_one_copy_of_meta(harness: Harness) -> None:
    store = harness.create()
    harness.crash()
    data = bytearray((store.directory / "meta").read_bytes())
    data[40] ^= 1
    (store.directory / "meta").write_bytes(data)
    (store,) = harness.open()
    assert told(harness, "meta", "a copy was damaged")
    assert harness.node.meta_of(store) == b'{"name":"S"}'
    harness.crash()
    harness.open()
    assert harness.node.problems == []


def test_directory_of_a_stream_deleted(harness: Harness) -> None:
    store = harness.create()
    kept = harness.create("T")
    fill(harness, kept, 1, 5)
    harness.crash()
    shutil.rmtree(store.directory)
    found = harness.open()
    assert {len(store.lost) for store in found} == {0}
    assert told(harness, str(store.directory), "is missing", "the log has it")
    for store in found:
        harness.node.delete_stream(store)
    harness.commit()
    harness.crash()
    assert harness.open() == []
    assert harness.node.problems == []


@pytest.mark.parametrize("more", [1, 4096, 65536])
def test_a_slot_longer_than_its_header_says(harness: Harness, more: int) -> None:
    fill(harness, harness.create(), 1, 300)
    slot = harness.node.log.active.slot.path
    harness.crash()
    os.truncate(slot, slot.stat().st_size + more)
    for last in (300, 310):
        (store,) = harness.open()
        assert harness.node.problems == []
        assert store.last_seq == last
        assert len(contents_or_lost(store)) == last
        assert not store.lost
        fill(harness, store, last + 1, last + 10)
        harness.crash()


def test_slots_of_another_size(harness: Harness) -> None:
    fill(harness, harness.create(), 1, 300)
    for life, size in enumerate((256 << 10, 64 << 10, 1 << 20)):
        harness.crash()
        harness.options.segment_bytes = size
        (store,) = harness.open()
        assert harness.node.problems == []
        assert store.last_seq == 300 * (life + 1)
        fill(harness, store, store.last_seq + 1, store.last_seq + 300)
        harness.settle()
    assert len(contents_or_lost(store)) == 1200
    harness.close()


def test_many_losses_in_a_row_do_not_fill_the_log(harness: Harness) -> None:
    """What the log is to know of them is written once a second, not for each."""
    store = harness.create()
    fill(harness, store, 1, 600)
    harness.close()
    (store,) = harness.open()
    before = harness.node.log.progress.position()["batch"]
    for sequence in range(1, 400):
        store.lost[sequence] = Loss("bad", 100)
        harness.node.damage.report(store, sequence, "bad")
        harness.turn()
    harness.commit()
    assert harness.node.log.progress.position()["batch"] < before + 40
