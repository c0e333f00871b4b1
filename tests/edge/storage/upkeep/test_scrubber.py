"""The scrubber finds damage that nobody reads, and writes again what it can."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.edge.storage.device.durable_file import TwoCopyFile
from headwater.edge.storage.format.errors import Damaged
from tests.edge.storage.store_harness import Harness, contents


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path)
    made.options.scrub_rate = 1 << 30
    made.options.scrub_pause = 3600.0
    yield made
    made.end()


def fill(harness: Harness, store: Any, count: int, size: int = 100) -> None:
    for n in range(count):
        store.add_message(b"s.%d" % (n % 3), b"%08d" % n + b"x" * size)
        if n % 50 == 49:
            harness.breathe()
    harness.commit()
    harness.settle()


def scrub(harness: Harness) -> Any:
    """One whole pass."""
    scrubber = harness.node.scrubber
    harness.until(lambda: not scrubber._running)
    before = scrubber.passes
    scrubber.begin_pass()
    harness.until(lambda: scrubber.passes > before)
    harness.settle()
    harness.commit()
    return scrubber


def flip(path: Path, at: int, bit: int = 4) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= bit
    path.write_bytes(bytes(data))


def test_sound_stores_have_no_findings(harness: Harness) -> None:
    harness.open()
    first, second = harness.create("one"), harness.create("two")
    fill(harness, first, 3000)
    for _ in range(10):
        fill(harness, second, 1, 200_000)
    for n in range(1, 3000, 3):
        first.delete(n)
        first.delete(n + 1, n % 100 == 1)
    harness.commit()
    harness.settle()
    for restart in (None, harness.crash, harness.close):
        if restart is not None:
            restart()
            harness.open()
        scrubber = scrub(harness)
        assert (scrubber.findings, scrubber.repaired) == (0, 0)
        assert scrubber.bytes > 2_000_000
        assert scrubber.last_pass > 0


@pytest.mark.parametrize("where", ["header", "body", "padding"])
def test_a_flipped_bit_in_a_cold_segment(harness: Harness, where: str) -> None:
    harness.open()
    store = harness.create()
    fill(harness, store, 4000)
    segment = store.segments[2]
    sequence = segment.first + 7
    at = segment.path.read_bytes().find(b"%08d" % (sequence - 1))
    flip(segment.path, at + {"header": -40, "body": 50, "padding": 108}[where])
    told = []
    harness.node.damage.listeners.append(lambda store, rows: told.append(rows))
    scrubber = scrub(harness)
    assert scrubber.findings == 1
    assert [list(rows) for rows in told] == [[sequence]]
    assert list(store.lost) == [sequence]
    with pytest.raises(Damaged):
        store.get(sequence)
    assert len(contents_but(store, sequence)) == 3999
    scrub(harness)
    assert list(store.lost) == [sequence]
    harness.crash()
    (store,) = harness.open()
    assert list(store.lost) == [sequence]
    assert len(contents_but(store, sequence)) == 3999
    scrub(harness)
    findings = scrub(harness).findings
    assert scrub(harness).findings == findings


def contents_but(store: Any, lost: int) -> list[int]:
    return [n for n in range(1, store.last_seq + 1) if n != lost and store.get(n)]


def test_every_record_of_a_small_segment(harness: Harness) -> None:
    """A flipped bit anywhere in a sealed segment is found, and one message is lost at most."""
    harness.open()
    store = harness.create()
    fill(harness, store, 1500)
    want = contents(store)
    path = store.segments[0].path
    size = path.stat().st_size
    for at in range(3, size, size // 60):
        if at < 512 and at % 256 >= 100:
            continue
        good = path.read_bytes()
        lost, before = dict(store.lost), harness.node.scrubber.findings
        flip(path, at)
        scrubber = scrub(harness)
        fresh = store.lost.keys() - lost.keys()
        assert len(fresh) <= 1, at
        assert scrubber.findings > before, at
        if not fresh:
            assert path.read_bytes() != good
    assert {n: store.get(n) for n in want if n not in store.lost}.keys() | store.lost.keys() == set(
        want
    )


def test_indexes_metas_and_lists_are_written_again(harness: Harness) -> None:
    harness.open()
    store = harness.create()
    fill(harness, store, 4000)
    harness.close()
    (store,) = harness.open()
    root = harness.directory / "jetstream"
    index = store.segments[1].path.with_suffix(".idx")
    assert store.segments[1].indexed
    flip(index, 200)
    flip(root / "HEADWATER", 30)
    (root / "slots").write_bytes(b"")
    meta = store.directory / "meta"
    meta.write_bytes(bytes(meta.stat().st_size))
    scrubber = scrub(harness)
    assert scrubber.repaired >= 3
    assert store.lost == {}
    harness.close()
    for path in (meta, root / "HEADWATER", root / "slots"):
        file = TwoCopyFile(path)
        assert file.read() is not None
        assert file.damaged == 0
    (store,) = harness.open()
    assert harness.node.problems == []
    assert len(contents(store)) == 4000
    assert scrub(harness).findings == 0


def test_an_index_that_only_the_next_start_would_use(harness: Harness) -> None:
    """A clean stop wrote it for the newest segment, which goes on since."""
    harness.open()
    store = harness.create()
    fill(harness, store, 500)
    want = contents(store)
    harness.close()
    (store,) = harness.open()
    index = store.segments[-1].path.with_suffix(".idx")
    assert index.exists() and not store.segments[-1].indexed
    flip(index, 200)
    scrubber = scrub(harness)
    assert (scrubber.findings, scrubber.repaired) == (1, 1)
    assert not index.exists()
    assert scrub(harness).findings == 1
    harness.crash()
    (store,) = harness.open()
    assert contents(store) == want and not harness.node.problems


def test_dictionaries_are_written_again(harness: Harness) -> None:
    harness.compressed = True
    harness.open()
    store = harness.create()
    fill(harness, store, 1200)
    harness.until(lambda: bool(list(store.directory.glob("*.dict"))))
    harness.until(lambda: store.packer.dictionary == 1)
    fill(harness, store, 1200)
    (path,) = store.directory.glob("*.dict")
    path.write_bytes(b"?" * path.stat().st_size)
    assert scrub(harness).repaired == 1
    harness.close()
    (store,) = harness.open()
    assert harness.node.problems == []
    assert len(contents(store)) == 2400


def test_log_segments_are_written_again_from_memory(harness: Harness) -> None:
    harness.open()
    store = harness.create()
    fill(harness, store, 4000)
    segment = harness.node.log.live[0]
    assert segment is not harness.node.log.active
    for at in (600, 5000, segment.end // 2):
        flip(segment.slot.path, at)
    assert scrub(harness).repaired == 1
    assert store.lost == {}
    harness.node.scrubber.stop()
    harness.crash()
    (store,) = harness.open()
    assert harness.node.problems == []
    assert len(contents(store)) == 4000


def test_it_goes_on_while_messages_come_and_go(harness: Harness) -> None:
    """Rewriting, checkpointing and trimming under a running pass cost no message."""
    harness.open()
    store = harness.create()
    fill(harness, store, 2000)
    scrubber = harness.node.scrubber
    for round_ in range(40):
        scrubber.begin_pass()
        for n in range(150):
            store.add_message(b"s", b"y" * 150)
            if n % 3:
                store.delete(store.last_seq - 1000 + n)
        store.delete(store.last_seq - 500, True)
        if round_ % 10 == 9:
            store.purge(None, store.first_seq + 300)
        harness.breathe()
    scrub(harness)
    assert (scrubber.findings, store.lost) == (0, {})
