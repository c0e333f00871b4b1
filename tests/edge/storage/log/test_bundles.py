"""Short messages of a stream that are gathered for one sync share a header in the log."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.edge.storage.directory.store_options import StoreOptions
from headwater.edge.storage.format.record_layout import (
    BUNDLE,
    BUNDLED_BYTES,
    HEADER_BYTES,
    bundled,
    read_header,
)
from headwater.edge.storage.node.node_store import BUNDLES_AFTER
from tests.edge.storage.format.store_decoder import Decoder, two_slots
from tests.edge.storage.store_harness import Harness, contents
from tests.edge.storage.twin_harness import TwinHarness

LARGE = 5000
Rows = dict[int, tuple[bytes, bytes, bytes]]
Found = tuple[Path, int, list[tuple[int, bytes]]]


@pytest.fixture(params=["plain", "sealed", "compressed", "both"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    sealed = request.param in ("sealed", "both")
    compressed = request.param in ("compressed", "both")
    made = Harness(tmp_path, sealed=sealed, compressed=compressed, gathered=True)
    yield made
    made.end()


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path, gathered=True)
    yield made
    made.end()


def trickle(harness: Harness, store: object, count: int, each: int = 10) -> None:
    """Messages that come one by one, so many for each sync. By turns their subjects are short and
    begin with the same."""
    for n in range(count):
        headers = b"NATS/1.0\r\nN: %d\r\n\r\n" % n if n % 3 == 0 else b""
        subject = b"%s.%d" % ((b"s", b"plant.machine")[n // 40 % 2], n % 5)
        store.add_message(subject, b"%08d" % n + b"payload " * (n % 20), headers)
        harness.kernel.turn()
        if n % each == each - 1:
            harness.commit()
    harness.commit()


def bundles(directory: Path) -> list[Found]:
    """(slot, offset, messages) of every bundle in the log."""
    root = directory / "jetstream"
    seed = Decoder(directory).seed
    found = []
    for path in sorted((root / "log").glob("*.log")):
        data = path.read_bytes()
        for at in range(512, len(data) - HEADER_BYTES, 8):
            header = read_header(data, at, seed) if data[at : at + 4] == b"HWR1" else None
            if header is not None and header.kind == BUNDLE and header.offset == at:
                found.append((path, at, list(bundled(data, at, header))))
    return found


@pytest.mark.parametrize("clean", [False, True])
def test_what_is_gathered_is_there_after_a_start(harness: Harness, clean: bool) -> None:
    harness.open()
    store = harness.create()
    trickle(harness, store, 400)
    assert sum(len(messages) for _, _, messages in bundles(harness.directory)) > 200
    harness.settle()
    want = contents(store)
    assert len(want) == 400
    (harness.close if clean else harness.crash)()
    for _ in range(2):
        (after,) = harness.open()
        assert contents(after) == want
        assert harness.node.problems == [] and after.lost == {}
        harness.crash()
    (after,) = harness.open()
    trickle(harness, after, 100)
    harness.crash()
    (last,) = harness.open()
    assert len(contents(last)) == 500


def test_an_independent_decoder_reads_bundles(plain: Harness) -> None:
    plain.open()
    store = plain.create()
    trickle(plain, store, 150)
    want = contents(store)
    plain.crash()
    decoder = Decoder(plain.directory)
    decoder.read()
    rows = decoder.streams[store.stream_id]
    assert {n: row["parts"] for n, row in rows.items()} == want
    identity = json.loads(two_slots(plain.directory / "jetstream" / "HEADWATER")[1])
    assert identity["format"] == 4


def test_streams_that_take_turns_get_records_of_their_own(plain: Harness) -> None:
    """A bundle of one message would be longer than its record."""
    plain.open()
    one, two = plain.create("ONE"), plain.create("TWO")
    for n in range(60):
        (one, two)[n % 2].add_message(b"s", b"%d" % n)
        plain.kernel.turn()
    plain.commit()
    assert bundles(plain.directory) == []
    trickle(plain, one, 30)
    lengths = [len(messages) for _, _, messages in bundles(plain.directory)]
    assert lengths and min(lengths) > 3


def test_what_is_long_or_many_has_records_of_its_own(plain: Harness) -> None:
    plain.open()
    store = plain.create()
    for n in range(300):
        store.add_message(b"s", b"x" * (LARGE if n % 50 == 49 else 20))
    plain.commit()
    (found,) = bundles(plain.directory)[:1]
    assert sum(len(messages) for _, _, messages in bundles(plain.directory)) <= 64
    assert all(len(message) < 200 for _, message in found[2])
    plain.crash()
    (after,) = plain.open()
    assert len(contents(after)) == 300


def opened_copy(
    harness: Harness, want: Rows, to: Path, path: Path, data: bytes
) -> dict[int, object]:
    """What is lost at the start of a copy of the store whose file `path` has this content; all else
    is as it was."""
    shutil.copytree(harness.directory, to)
    (to / path.relative_to(harness.directory)).write_bytes(data)
    copy = Harness(to, gathered=True)
    (store,) = copy.open()
    for sequence, row in want.items():
        if sequence not in store.lost:
            assert store.get(sequence).payload == row[2]
    assert store.messages == len(want) - len(store.lost)
    lost = dict(store.lost)
    copy.end()
    return lost


@pytest.fixture
def crashed(plain: Harness) -> tuple[Rows, Found]:
    """What a store held that crashed, and its bundle with most messages."""
    plain.open()
    store = plain.create()
    trickle(plain, store, 40)
    want = contents(store)
    plain.crash()
    return want, max(bundles(plain.directory), key=lambda found: len(found[2]))


def test_a_flipped_bit_costs_one_message(
    plain: Harness, crashed: tuple[Rows, Found], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Wherever it is in its body; the rest of the bundle is there, and what is lost is told."""
    want, (path, at, messages) = crashed
    offset = at + HEADER_BYTES
    for sequence, message in messages:
        damaged = bytearray(path.read_bytes())
        damaged[offset + BUNDLED_BYTES + 2] ^= 4
        to = tmp_path_factory.mktemp("copy") / "store"
        assert set(opened_copy(plain, want, to, path, damaged)) == {sequence}
        offset += len(message)


def test_a_wrong_length_costs_one_message(
    plain: Harness, crashed: tuple[Rows, Found], tmp_path: Path
) -> None:
    want, (path, at, messages) = crashed
    damaged = bytearray(path.read_bytes())
    damaged[at + HEADER_BYTES] ^= 1
    lost = opened_copy(plain, want, tmp_path.parent / f"{tmp_path.name}-copy", path, damaged)
    assert set(lost) == {messages[0][0]}


def test_a_hub_writes_no_bundles(tmp_path: Path) -> None:
    """Older programs would read its store as if messages were missing."""
    harness = Harness(tmp_path)
    harness.options.max_delay = 0.005
    assert not StoreOptions(tmp_path).bundles
    harness.open()
    trickle(harness, harness.create(), 50)
    assert bundles(tmp_path) == []
    identity = json.loads(two_slots(tmp_path / "jetstream" / "HEADWATER")[1])
    assert identity["format"] == 1
    harness.end()


def test_an_older_store_goes_over_after_a_while() -> None:
    """Until then the program before an upgrade can take it over again."""
    harness = TwinHarness()
    harness.open()
    harness.create()
    harness.commit()
    harness.close()
    after = TwinHarness(harness.disk, gathered=True)
    after.open()
    assert (after.node.directory.format, after.node.log.bundles) == (1, False)
    began = after.loop.time()
    after.loop.run_until(lambda: after.node.log.bundles)
    assert after.loop.time() - began >= BUNDLES_AFTER - 1
    assert after.node.directory.format == 4
    after.close()
    last = TwinHarness(harness.disk, gathered=True)
    last.open()
    assert last.node.log.bundles
    last.close()
