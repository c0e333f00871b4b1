"""Packing again: new keys, sealing turned on, dictionaries of erased messages."""

import json
from pathlib import Path

import pytest

from headwater.edge.storage.device.durable_file import TwoCopyFile
from headwater.edge.storage.packing.dictionary_pieces import SHARED_MIN
from headwater.edge.storage.segments.file_store import FileStore
from headwater.security.sealing import KeyRing
from tests.edge.storage.packing.test_sealing import OTHER, SECRET, fill, stored_bytes, whole
from tests.edge.storage.store_harness import KEY, Harness, contents


def identity(store: FileStore) -> dict[str, object]:
    content = TwoCopyFile(store.directory / "meta").read()
    assert content is not None
    row: dict[str, object] = json.loads(content.split(b"\n", 1)[0])
    return row


def repacked(harness: Harness) -> None:
    node = harness.node
    assert node is not None
    harness.until(lambda: not node.repacker.waiting and not node.eraser._pending)


def test_a_segment_without_messages_is_passed_over(tmp_path: Path) -> None:
    """The newest segment has nothing but what tells of a removal."""
    harness = Harness(tmp_path, sealed=True)
    harness.open()
    store = harness.create()
    fill(harness, store, 1, 300)
    harness.close()
    (store,) = harness.open()
    store.segments[-1].sealed = True  # As if it were full.
    store.delete(5, False)
    harness.commit()
    harness.close()
    harness.options.keys = KeyRing(OTHER, (KEY,))
    (store,) = harness.open()
    assert (store.segments[-1].last, store.segments[-1].live) == (0, 0)
    repacked(harness)
    (row,) = identity(store)["keys"]
    assert row["number"] == 2
    fill(harness, store, store.last_seq + 1, store.last_seq + 100)
    want = contents(store)
    for again in (harness.crash, harness.close):
        again()
        harness.options.keys = KeyRing(OTHER)
        (store,) = harness.open()
        assert harness.node.problems == []
        assert contents(store) == want
    harness.end()


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("stop", ["crash", "close"])
def test_key_is_replaced_everywhere(tmp_path: Path, compressed: bool, stop: str) -> None:
    harness = Harness(tmp_path, sealed=True, compressed=compressed)
    harness.open()
    store = harness.create()
    owner = store.incarnation.encode()
    harness.node.log.put_state(owner, b"consumer", SECRET)
    fill(harness, store, 1, 2500)
    for at in range(100, 900, 3):
        store.delete(at, False)
    harness.commit()
    want = contents(store)
    getattr(harness, stop)()
    harness.options.keys = KeyRing(OTHER, (KEY,))
    (store,) = harness.open()
    assert len(identity(store)["keys"]) == 2
    assert harness.node.repacker.waiting == 1
    repacked(harness)
    (row,) = identity(store)["keys"]
    assert row["number"] == 2
    assert "repack" not in identity(store)
    for again in (harness.crash, harness.close, harness.crash):
        again()
        harness.options.keys = KeyRing(OTHER)
        (store,) = harness.open()
        assert harness.node.problems == []
        assert contents(store) == want
        assert harness.node.log.states(owner)[b"consumer"][0] == SECRET
        assert harness.node.repacker.waiting == 0
    harness.end()


def test_plain_store_is_sealed(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.open()
    store = harness.create()
    harness.node.log.put_state(store.incarnation.encode(), b"consumer", SECRET)
    fill(harness, store, 1, 3000)
    harness.close()
    assert SECRET in stored_bytes(harness)
    harness.options.keys = KeyRing(KEY)
    (store,) = harness.open()
    fill(harness, store, 3001, 3500)
    repacked(harness)
    harness.commit()
    harness.settle()
    for stop in (harness.crash, harness.close, harness.crash):
        data = stored_bytes(harness)
        assert SECRET not in data
        assert b"secretname" not in data
        stop()
        (store,) = harness.open()
        assert harness.node.problems == []
        assert whole(store, 3500)
    harness.end()


def test_crashes_while_it_is_packed_again(tmp_path: Path) -> None:
    harness = Harness(tmp_path, compressed=True)
    harness.open()
    fill(harness, harness.create(), 1, 3000)
    harness.close()
    harness.options.keys = KeyRing(KEY)
    for turns in range(0, 400, 25):
        (store,) = harness.open()
        assert harness.node.problems == []
        assert whole(store, 3000)
        for _ in range(turns):
            harness.turn()
        harness.crash()
    (store,) = harness.open()
    repacked(harness)
    assert whole(store, 3000)
    assert SECRET not in stored_bytes(harness)
    harness.end()


def test_dictionary_has_no_piece_of_few_messages(tmp_path: Path) -> None:
    harness = Harness(tmp_path, compressed=True)
    harness.open()
    store = harness.create()
    for n in range(1000):
        rare = "only seldom said" if n % 100 == 0 else f"note {n * 7919}"
        text = {"sensor": n % 7, "place": "north hall", "text": rare}
        store.add_message(b"plant.%d" % (n % 5), json.dumps(text).encode())
    harness.commit()
    harness.until(lambda: "dictionaries" in identity(store))
    content = store.packer.dictionary_content(1)
    assert b"north hall" in content
    assert b"seldom" not in content
    harness.end()


@pytest.mark.parametrize("sealed", [False, True])
def test_dictionary_goes_away_with_its_messages(tmp_path: Path, sealed: bool) -> None:
    harness = Harness(tmp_path, sealed=sealed, compressed=True)
    harness.open()
    store = harness.create()
    fill(harness, store, 1, 1100)
    harness.until(lambda: "dictionaries" in identity(store))
    fill(harness, store, 1101, 2000)
    assert SECRET[:12] in store.packer.dictionary_content(1)
    for at in range(1, SHARED_MIN + 1):
        store.delete(at, True)
        harness.commit()
    want = contents(store)
    repacked(harness)
    assert identity(store)["dictionaries"] == []
    assert not list(store.directory.glob("*.dict"))
    for stop in (harness.crash, harness.close):
        stop()
        (store,) = harness.open()
        assert harness.node.problems == []
        assert contents(store) == want
    fill(harness, store, 2001, 3200)
    harness.until(lambda: identity(store)["dictionaries"] == [1])
    harness.end()
