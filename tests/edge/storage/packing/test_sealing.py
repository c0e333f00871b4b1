"""Sealed and compressed stores: nothing readable on disk, keys that change, lost or wrong keys."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.edge.storage.format.errors import StoreError
from headwater.security.sealing import AES, KeyRing, NodeKey
from tests.edge.storage.format.store_decoder import Decoder
from tests.edge.storage.store_harness import KEY, Harness, contents, segment_bytes

OTHER = NodeKey.of(b"another key for tests")
SECRET = b"the quick brown fox"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path, sealed=True)
    yield made
    made.end()


def fill(harness: Harness, store: object, first: int, last: int) -> None:
    for n in range(first, last + 1):
        text = {"sensor": n % 7, "place": "north hall", "value": n * 3, "secret": SECRET.decode()}
        store.add_message(b"plant.%d.secretname" % (n % 5), json.dumps(text).encode())
        if n % 50 == 0:
            harness.breathe()
    harness.commit()
    harness.settle()


def stored_bytes(harness: Harness) -> bytes:
    return b"".join(path.read_bytes() for path in harness.directory.rglob("*") if path.is_file())


def whole(store: object, count: int) -> bool:
    got = contents(store)
    return sorted(got) == list(range(1, count + 1)) and all(
        json.loads(row[2])["value"] == n * 3 for n, row in got.items()
    )


@pytest.mark.parametrize("compressed", [False, True])
def test_nothing_readable_on_disk(harness: Harness, compressed: bool) -> None:
    harness.compressed = compressed
    harness.open()
    store = harness.create()
    fill(harness, store, 1, 3000)
    for stop in (harness.crash, harness.close, harness.close):
        stop()
        data = stored_bytes(harness)
        assert SECRET not in data
        assert b"secretname" not in data
        (store,) = harness.open()
        assert harness.node.problems == []
        assert whole(store, 3000)


def test_plain_stores_are_readable_on_disk(tmp_path: Path) -> None:
    """So that the test above can fail."""
    harness = Harness(tmp_path)
    harness.open()
    fill(harness, harness.create(), 1, 10)
    assert SECRET in stored_bytes(harness)
    assert b"secretname" in stored_bytes(harness)
    harness.end()


@pytest.mark.parametrize("ring", [None, KeyRing(OTHER)])
def test_wrong_or_missing_key_changes_nothing(harness: Harness, ring: KeyRing | None) -> None:
    harness.open()
    fill(harness, harness.create(), 1, 500)
    harness.close()
    before = stored_bytes(harness)
    harness.options.keys = ring
    with pytest.raises(StoreError, match="A > S.*sealed.*key.*nothing was changed"):
        harness.open()
    harness.node = None
    assert stored_bytes(harness) == before
    harness.options.keys = KeyRing(KEY)
    (store,) = harness.open()
    assert harness.node.problems == []
    assert harness.node.clean_start
    assert whole(store, 500)


def test_keys_are_replaced(harness: Harness) -> None:
    harness.open()
    fill(harness, harness.create(), 1, 1500)
    harness.close()
    harness.options.keys = KeyRing(OTHER, (KEY,))
    (store,) = harness.open()
    fill(harness, store, 1501, 3000)
    harness.crash()
    harness.options.keys = KeyRing(OTHER)
    (store,) = harness.open()
    assert harness.node.problems == []
    assert whole(store, 3000)
    assert harness.node.meta_of(store) == b'{"name":"S"}'


def test_sealing_is_turned_on_and_off(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.open()
    fill(harness, harness.create(), 1, 1000)
    for ring, last in ((KeyRing(KEY), 2000), (KeyRing(None, (KEY,)), 3000)):
        harness.close()
        harness.options.keys = ring
        (store,) = harness.open()
        fill(harness, store, last - 999, last)
        harness.crash()
        (store,) = harness.open()
        assert harness.node.problems == []
        assert whole(store, last)
    harness.end()


def test_aes(tmp_path: Path) -> None:
    harness = Harness(tmp_path, sealed=True)
    harness.options.keys = KeyRing(KEY, cipher=AES)
    harness.open()
    fill(harness, harness.create(), 1, 200)
    for stop in (harness.crash, harness.close):
        stop()
        assert SECRET not in stored_bytes(harness)
        (store,) = harness.open()
        assert whole(store, 200)
    harness.end()


@pytest.mark.parametrize("sealed", [False, True])
def test_small_messages_take_less(tmp_path: Path, sealed: bool) -> None:
    harness = Harness(tmp_path, sealed=sealed, compressed=True)
    harness.open()
    store = harness.create()
    fill(harness, store, 1, 1100)
    harness.until(lambda: b"dictionaries" in (store.directory / "meta").read_bytes())
    fill(harness, store, 1101, 6000)
    harness.close()
    (store,) = harness.open()
    assert whole(store, 6000)
    plain = sum(len(b"".join(row)) + (108 if sealed else 64) for row in contents(store).values())
    assert segment_bytes(store) < 0.8 * plain
    assert store.bytes == sum(len(b"".join(row)) + 30 for row in contents(store).values())
    harness.end()


def test_lost_dictionary_is_told(tmp_path: Path) -> None:
    harness = Harness(tmp_path, compressed=True)
    harness.open()
    store = harness.create()
    fill(harness, store, 1, 1100)
    harness.until(lambda: b"dictionaries" in (store.directory / "meta").read_bytes())
    fill(harness, store, 1101, 1500)
    harness.close()
    (path,) = store.directory.glob("*.dict")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    (store,) = harness.open()
    assert any("a copy was damaged" in str(text) for text in harness.node.problems)
    assert whole(store, 1500)
    harness.close()
    path.unlink()
    (store,) = harness.open()
    assert any("000001.dict is missing" in str(text) for text in harness.node.problems)
    lost = 0
    for n in range(1, 1501):
        try:
            store.get(n)
        except StoreError:
            lost += 1
    assert lost == len(store.lost) > 300
    assert store.last_seq == 1500
    harness.end()


def test_dictionary_made_while_a_restore_ends(tmp_path: Path) -> None:
    harness = Harness(tmp_path, compressed=True)
    harness.open()
    harness.node.making = True
    store = harness.create()
    harness.node.making = False
    fill(harness, store, 1, 999)
    store.add_message(b"plant.1.secretname", json.dumps({"value": 3000}).encode())
    harness.node.finish_stream(store)
    harness.until(lambda: b"dictionaries" in (store.directory / "meta").read_bytes())
    fill(harness, store, 1001, 1200)
    harness.crash()
    (store,) = harness.open()
    assert harness.node.problems == []
    assert whole(store, 1200)
    harness.end()


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("sealed", [False, True])
def test_flipped_bits_hurt_one_message(tmp_path: Path, sealed: bool, compressed: bool) -> None:
    """One bit of every 257th byte of a segment, in turn."""
    harness = Harness(tmp_path / "node", sealed=sealed, compressed=compressed)
    harness.open()
    fill(harness, harness.create(), 1, 40)
    harness.close()
    (store,) = harness.open()
    want = contents(store)
    harness.crash()
    copy = tmp_path / "copy"
    shutil.copytree(harness.directory, copy)
    path = next(harness.directory.rglob("*.seg"))
    sound = path.read_bytes()
    for at in range(512, len(sound), 257):
        data = bytearray(sound)
        data[at] ^= 1 << (at % 8)
        shutil.rmtree(harness.directory)
        shutil.copytree(copy, harness.directory)
        path.write_bytes(data)
        (store,) = harness.open()
        got = {}
        for n in want:
            try:
                got[n] = store.get(n)
            except StoreError:
                continue
        assert len(got) >= 39
        assert all((row.subject, row.headers, row.payload) == want[n] for n, row in got.items())
        assert store.last_seq == 40
        harness.crash()
    harness.end()


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("sealed", [False, True])
def test_decoded_by_an_independent_reader(tmp_path: Path, sealed: bool, compressed: bool) -> None:
    harness = Harness(tmp_path, sealed=sealed, compressed=compressed)
    harness.open()
    store = harness.create()
    fill(harness, store, 1, 1100)
    if compressed:
        harness.until(lambda: b"dictionaries" in (store.directory / "meta").read_bytes())
    fill(harness, store, 1101, 1300)
    want = contents(store)
    harness.crash()
    decoder = Decoder(tmp_path, b"a key for tests")
    decoder.read()
    assert decoder.indexes
    (messages,) = decoder.streams.values()
    assert {n: row["parts"] for n, row in messages.items()} == want


def test_erased_messages_leave_nothing(harness: Harness) -> None:
    harness.open()
    store = harness.create()
    fill(harness, store, 1, 2000)
    path, size = store.segments[0].path, store.segments[0].end
    before = path.read_bytes()[:size]
    store.delete(5, True)
    harness.commit()
    harness.until(lambda: harness.node.eraser.erased == 1)
    assert path.read_bytes()[:size] != before
    harness.close()
    (store,) = harness.open()
    assert harness.node.problems == []
    assert store.get(5) is None
    assert store.get(4) is not None and store.get(6) is not None


def test_states_are_sealed(harness: Harness) -> None:
    harness.open()
    store = harness.create()
    owner = store.incarnation.encode()
    harness.node.log.put_state(owner, b"consumer", b"filter: " + SECRET)
    harness.node.log.add_delta(owner, b"consumer", b"more " + SECRET)
    want = {b"consumer": (b"filter: " + SECRET, [b"more " + SECRET])}
    fill(harness, store, 1, 2000)
    for stop in (harness.crash, harness.close, harness.crash):
        assert harness.node.log.states(owner) == want
        assert all(SECRET not in part for part in table_bytes(harness, owner))
        stop()
        assert SECRET not in stored_bytes(harness)
        harness.open()
    assert harness.node.log.states(owner) == want


def table_bytes(harness: Harness, owner: bytes) -> list[bytes]:
    """What is kept in memory, as it lies in the log."""
    rows = harness.node.log.table.due(1 << 32)
    return [part for row in rows if row.owner == owner for part in (row.value, *row.deltas)]
