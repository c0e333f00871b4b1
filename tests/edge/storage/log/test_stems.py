"""What the subjects of a bundle begin and end with stands in it once: its stem."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.edge.storage.directory.directory import BUNDLES_FORMAT, STEMS_FORMAT
from headwater.edge.storage.erase.erase_jobs import in_bundle
from headwater.edge.storage.erase.erase_rows import IN_BUNDLE
from headwater.edge.storage.format.record_layout import (
    HEADER_BYTES,
    has_stem,
    read_header,
)
from headwater.edge.storage.node.node_store import BUNDLES_AFTER
from tests.edge.storage.format.store_decoder import Decoder
from tests.edge.storage.log.test_bundles import Found, Rows, bundles, opened_copy
from tests.edge.storage.store_harness import Harness, contents
from tests.edge.storage.twin_harness import TwinHarness

FRONT, BACK = b"plant.hall-seven.machine.", b".celsius"
STEM = bytes([len(FRONT)]) + FRONT + BACK
SECRET = b"people.jane-doe-only-here"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path, gathered=True)
    yield made
    made.end()


def gather(harness: Harness, store: object, subjects: list[bytes], each: int = 10) -> None:
    """Messages that come one by one, so many for each sync."""
    for n, subject in enumerate(subjects):
        headers = b"NATS/1.0\r\nN: %d\r\n\r\n" % n if n % 3 == 0 else b""
        store.add_message(subject, b"%08d" % n, headers)
        harness.kernel.turn()
        if n % each == each - 1:
            harness.commit()
    harness.commit()


def alike(count: int) -> list[bytes]:
    """Subjects that begin and end with the same."""
    return [FRONT + b"%d" % (n * 7 % 10) + BACK for n in range(count)]


def stems(directory: Path) -> list[bytes]:
    """Those of all bundles in the log, in its order; empty where one has none."""
    seed = Decoder(directory).seed
    found = []
    for path, at, _ in bundles(directory):
        data = path.read_bytes()
        length = read_header(data, at, seed).header_len
        found.append(data[at + HEADER_BYTES : at + HEADER_BYTES + length])
    return found


def decoded(harness: Harness, store: object) -> Rows:
    """What an independent decoder reads of a store that crashed."""
    decoder = Decoder(harness.directory)
    decoder.read()
    return {n: row["parts"] for n, row in decoder.streams.get(store.stream_id, {}).items()}


def test_what_subjects_share_stands_once(harness: Harness) -> None:
    harness.open()
    store = harness.create()
    gather(harness, store, alike(80))
    want = contents(store)
    found = stems(harness.directory)
    assert found[0] == b"" and set(found[1:]) == {STEM} and len(found) >= 6
    path, _, messages = bundles(harness.directory)[-1]
    assert all(has_stem(message) for _, message in messages)
    assert not any(FRONT in message or BACK in message for _, message in messages)
    harness.crash()
    assert decoded(harness, store) == want
    (after,) = harness.open()
    assert contents(after) == want and harness.node.problems == []


def test_one_subject_stands_once(harness: Harness) -> None:
    harness.open()
    store = harness.create()
    gather(harness, store, [FRONT] * 40)
    want = contents(store)
    assert bytes([len(FRONT)]) + FRONT in stems(harness.directory)
    harness.crash()
    assert decoded(harness, store) == want
    (after,) = harness.open()
    assert contents(after) == want


@pytest.mark.parametrize(
    "subjects", [[b"s.1", b"s.2"], [b"a.b.x", b"a.d.y"], [b"x.aa", b"y.aa"], [b"a", b"aaaa"]]
)
def test_what_is_too_short_is_no_stem(harness: Harness, subjects: list[bytes]) -> None:
    harness.open()
    store = harness.create()
    gather(harness, store, subjects * 20)
    assert len(stems(harness.directory)) >= 3 and set(stems(harness.directory)) == {b""}


@pytest.mark.parametrize("packed", ["sealed", "compressed"])
def test_what_is_sealed_or_compressed_has_no_stem_in_plain(tmp_path: Path, packed: str) -> None:
    harness = Harness(tmp_path, gathered=True, **{packed: True})
    harness.open()
    store = harness.create()
    for n in range(60):
        store.add_message(FRONT + b"%d" % (n % 7), b"payload " * 20)
        harness.kernel.turn()
        if n % 10 == 9:
            harness.commit()
    want = contents(store)
    harness.crash()
    if packed == "sealed":
        assert set(stems(tmp_path)) == {b""}
    (after,) = harness.open()
    assert contents(after) == want
    harness.end()


PIECES = st.sampled_from([b"a", b"aaaaa", b"plant", b"plant.hall", b"machine-nine", b"x" * 60])
SUBJECTS = st.lists(PIECES, min_size=1, max_size=4).map(b".".join)


@settings(max_examples=12, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 1), SUBJECTS, st.integers(0, 9)), max_size=60),
    each=st.sampled_from([2, 5, 30]),
    stems_from=st.integers(0, 30),
)
def test_any_subjects_are_read_as_they_were(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, bytes, int]],
    each: int,
    stems_from: int,
) -> None:
    """Of two streams, by turns, after a crash: by a start, by the next one, which reads segments,
    and by an independent decoder. Older bundles without stems stand in the same log."""
    harness = Harness(tmp_path_factory.mktemp("store"), gathered=True)
    harness.open()
    stores = [harness.create("ONE"), harness.create("TWO")]
    harness.node.log.stems = False
    for n, (which, subject, size) in enumerate(rows):
        harness.node.log.stems = n >= stems_from
        stores[which].add_message(subject, b"payload!" * size)
        if n % each == each - 1:
            harness.commit()
    harness.commit()
    want = {store.incarnation: contents(store) for store in stores}
    read = [decoded(harness, store) for store in stores]
    harness.crash()
    assert read == [want[store.incarnation] for store in stores]
    for stop in (harness.close, harness.crash):
        found = harness.open()
        assert {store.incarnation: contents(store) for store in found} == want
        assert harness.node.problems == []
        stop()
    harness.end()


@pytest.fixture
def crashed(harness: Harness) -> tuple[Rows, Found]:
    """What a store held that crashed, and its longest bundle with a stem."""
    harness.open()
    store = harness.create()
    gather(harness, store, alike(40))
    want = contents(store)
    harness.crash()
    seed = Decoder(harness.directory).seed
    found = [one for one in bundles(harness.directory) if has_stem(one[2][0][1])]
    assert all(read_header(one[0].read_bytes(), one[1], seed).header_len for one in found)
    return want, max(found, key=lambda one: len(one[2]))


@pytest.mark.parametrize("place", [0, 1, 11, len(STEM) - 1])
def test_a_damaged_stem_costs_its_bundle_and_is_told(
    harness: Harness, crashed: tuple[Rows, Found], tmp_path: Path, place: int
) -> None:
    """Never is a message given out with another subject."""
    want, (path, at, messages) = crashed
    damaged = bytearray(path.read_bytes())
    damaged[at + HEADER_BYTES + place] ^= 2
    lost = opened_copy(harness, want, tmp_path.parent / f"{tmp_path.name}-copy", path, damaged)
    assert set(lost) == {sequence for sequence, _ in messages}


def test_any_flipped_bit_behind_the_stem_costs_one_message(
    harness: Harness, crashed: tuple[Rows, Found], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whichever byte of a message it is in, the head too."""
    want, (path, at, messages) = crashed
    offset = at + HEADER_BYTES + len(STEM)
    chance = random.Random(5)
    for sequence, message in messages:
        for where in chance.sample(range(len(message)), 3):
            damaged = bytearray(path.read_bytes())
            damaged[offset + where] ^= 1 << chance.randrange(8)
            to = tmp_path_factory.mktemp("copy") / "store"
            assert set(opened_copy(harness, want, to, path, damaged)) == {sequence}
        offset += len(message)


def traces(directory: Path, text: bytes) -> list[str]:
    """Files in which something stands."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return [path.name for path in files if text in path.read_bytes()]


def erase(harness: Harness, store: object, sequences: list[int]) -> None:
    for sequence in sequences:
        assert store.delete(sequence, True)
    harness.node.log.hand_over()
    harness.until(lambda: not harness.node.eraser._pending and not harness.node.eraser._busy)


@pytest.mark.parametrize("one_by_one", [False, True])
def test_erasing_reaches_the_stem(harness: Harness, one_by_one: bool) -> None:
    """Once the last message with it is erased, the stem is, in the file and after a crash; until
    then the others are read."""
    harness.open()
    store = harness.create()
    gather(harness, store, [SECRET] * 30)
    gather(harness, store, alike(30))
    assert any(SECRET in stem for stem in stems(harness.directory))
    want = contents(store)
    for sequences in [[n] for n in range(1, 31)] if one_by_one else [list(range(1, 31))]:
        erase(harness, store, sequences)
        for sequence in sequences:
            del want[sequence]
        assert contents(store) == want
    assert traces(harness.directory, SECRET) == []
    for restart in (harness.crash, harness.close):
        restart()
        (store,) = harness.open()
        assert contents(store) == want and harness.node.problems == [] and store.lost == {}
        assert traces(harness.directory, SECRET) == []


def test_a_stem_stays_while_a_message_has_it(harness: Harness) -> None:
    harness.open()
    store = harness.create()
    gather(harness, store, alike(40))
    want = contents(store)
    _, _, messages = bundles(harness.directory)[-1]
    gone = [sequence for sequence, _ in messages[1:]]
    erase(harness, store, gone)
    for sequence in gone:
        del want[sequence]
    assert stems(harness.directory)[-1] == STEM
    harness.crash()
    assert decoded(harness, store) == want
    (after,) = harness.open()
    assert contents(after) == want and harness.node.problems == []


@pytest.mark.parametrize("keep", [(0, 25), (5, 0), (40, 9), (12, 25), (1 << 20, 3)])
def test_a_half_overwritten_stem_is_no_damage(harness: Harness, keep: tuple[int, int]) -> None:
    """Power went off while the last message of a stem was being overwritten: so many bytes of the
    message and of the stem are new."""
    harness.open()
    store = harness.create()
    gather(harness, store, [SECRET] * 20)
    path, at, messages = bundles(harness.directory)[-1]
    last = messages[-1][0]
    want = contents(store)
    erase(harness, store, [sequence for sequence, _ in messages[:-1]])
    harness.node.eraser._start_round = lambda: None
    assert store.delete(last, True)
    harness.commit()
    (intent,) = harness.node.eraser._pending.values()
    (location,) = intent.locations
    assert location.where == IN_BUNDLE
    segment = next(s for s in harness.node.log.live if s.number == location.number)
    parts = in_bundle(segment, intent.stream, location, store.seed).parts
    assert len(parts) == 2
    harness.crash()
    with segment.slot.path.open("r+b") as file:
        for (offset, new), count in zip(parts, keep, strict=True):
            file.seek(offset)
            file.write(new[:count])
    (after,) = harness.open()
    assert harness.node.problems == [] and after.lost == {}
    harness.until(lambda: not harness.node.eraser._pending)
    for sequence, _ in messages:
        del want[sequence]
    assert contents(after) == want
    assert path.read_bytes()[at + HEADER_BYTES :][: 1 + len(SECRET)] == bytes(1 + len(SECRET))


def test_a_store_of_the_format_before_has_no_stems_at_first() -> None:
    """Its bundles stay as they were until it goes over, when the program before cannot have to take
    it over again."""
    harness = TwinHarness()
    harness.open()
    harness.create()
    harness.node.directory.raise_format(BUNDLES_FORMAT)
    harness.commit()
    harness.close()
    after = TwinHarness(harness.disk, gathered=True)
    after.open()
    log, directory = after.node.log, after.node.directory
    assert (directory.format, log.bundles, log.stems) == (BUNDLES_FORMAT, True, False)
    began = after.loop.time()
    after.loop.run_until(lambda: log.stems)
    assert after.loop.time() - began >= BUNDLES_AFTER - 1
    assert (directory.format, log.bundles) == (STEMS_FORMAT, True)
    after.close()
    last = TwinHarness(harness.disk, gathered=True)
    last.open()
    assert last.node.log.stems
    last.close()
