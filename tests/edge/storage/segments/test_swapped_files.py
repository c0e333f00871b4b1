"""Files that stand in another stream's directory: their content is never served as its own."""

from pathlib import Path

import pytest

from headwater.edge.storage.format.errors import Damaged
from headwater.edge.storage.segments.file_store import FileStore
from tests.edge.storage.store_harness import Harness, contents


def exchange(first: Path, second: Path) -> None:
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)


def right_or_lost(store: FileStore, want: dict[int, tuple[bytes, bytes, bytes]]) -> int:
    """How many messages are lost, and named; what is read is what was written."""
    lost = 0
    for sequence, row in want.items():
        try:
            message = store.get(sequence)
        except Damaged:
            message = None
        if message is None:
            assert sequence in store.lost, sequence
            lost += 1
        else:
            assert (message.subject, message.headers, message.payload) == row
    return lost


@pytest.mark.parametrize("indexed", [False, True])
def test_segments(tmp_path: Path, indexed: bool) -> None:
    harness = Harness(tmp_path)
    harness.open()
    first, second = harness.create("A"), harness.create("B")
    for store, count in ((first, 300), (second, 500)):
        for n in range(count):
            store.add_message(b"s", b"%d of %d" % (n, count))
        harness.commit()
    want = {store.incarnation: contents(store) for store in (first, second)}
    harness.close()
    exchange(first.segments[0].path, second.segments[0].path)
    if not indexed:
        for store in (first, second):
            for path in store.directory.glob("*.idx"):
                path.unlink()
    found = harness.open()
    assert len(found) == 2
    for store in found:
        rows = want[store.incarnation]
        assert right_or_lost(store, rows) > 0
        assert store.last_seq == max(rows)
    assert any("another stream" in str(text) for text in harness.node.problems)
    assert harness.node.quarantined == 2
    harness.end()


def test_dictionaries(tmp_path: Path) -> None:
    harness = Harness(tmp_path, compressed=True)
    harness.open()
    stores = harness.create("A"), harness.create("B")
    for n, store in enumerate(stores):
        for i in range(1100):
            store.add_message(b"s", b'{"sensor%d":%d,"place":"hall %d"}' % (n, i * 7919, n))
        harness.commit()
        meta = store.directory / "meta"
        harness.until(lambda at=meta: at.exists() and b"dictionaries" in at.read_bytes())
        for i in range(300):
            store.add_message(b"s", b'{"sensor%d":%d,"place":"hall %d"}' % (n, i * 7907, n))
        harness.commit()
    want = {store.incarnation: contents(store) for store in stores}
    paths = [next(store.directory.glob("*.dict")) for store in stores]
    harness.close()
    exchange(*paths)
    for store in harness.open():
        assert 0 < right_or_lost(store, want[store.incarnation]) <= 300
    assert sum("messages compressed with it" in str(text) for text in harness.node.problems) == 2
    harness.end()
