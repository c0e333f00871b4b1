"""What is put aside is kept, listed, put back when it is whole again, and removed only by name."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.edge.storage.device.durable_file import TwoCopyFile
from headwater.edge.storage.directory.quarantine import Quarantine
from headwater.edge.storage.format.errors import StoreError
from tests.edge.storage.store_harness import Harness, contents


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path)
    yield made
    made.end()


def fill(harness: Harness, store: object, count: int) -> None:
    for n in range(count):
        store.add_message(b"s.%d" % (n % 3), b"%08d" % n + b"x" * 100)
        if n % 50 == 49:
            harness.breathe()
    harness.commit()


def put_aside(harness: Harness, count: int) -> tuple[dict, bytes, str]:
    """A stream whose meta was damaged: its messages, the good meta, and its incarnation."""
    harness.open()
    store = harness.create("bad")
    fill(harness, harness.create("good"), 5)
    fill(harness, store, count)
    store.delete(3)
    store.delete(count - 2)
    harness.commit()
    want = contents(store)
    harness.crash()
    path = store.directory / "meta"
    good = path.read_bytes()
    TwoCopyFile(path).replace(b"newer than what the log has, and nonsense")
    (left,) = harness.open()
    assert left.incarnation != store.incarnation
    return want, good, store.incarnation


def test_a_stream_comes_back_whole_when_its_meta_is_repaired(harness: Harness) -> None:
    want, good, incarnation = put_aside(harness, 2000)
    node = harness.node
    items = {item.name: item for item in node.quarantine.items()}
    name = next(name for name in items if name.startswith(incarnation))
    assert (items[name].kind, items[name].restorable) == ("stream", False)
    assert "meta" in items[name].reason
    assert items[name].bytes > 10_000  # the rest was in the log when the node crashed
    assert any(item.kind == "log" for item in items.values())
    with pytest.raises(StoreError, match="put a good copy of .*/meta there first"):
        node.restore_quarantined(name)
    (node.quarantine.path / name / "meta").write_bytes(good)
    assert next(i for i in node.quarantine.items() if i.name == name).stream == "bad"
    stream = node.restore_quarantined(name)
    assert (stream.account, stream.name) == ("A", "bad")
    assert contents(stream.store) == want
    assert stream.store.last_seq == 2000
    assert stream.store.add_message(b"s.1", b"new") == 2001
    harness.commit()
    for restart in (harness.crash, harness.close):
        restart()
        found = {store.incarnation: store for store in harness.open()}
        assert set(contents(found[incarnation])) == {*want, 2001}
        assert not harness.node.problems


def test_only_the_whole_name_purges(harness: Harness) -> None:
    _, _, incarnation = put_aside(harness, 300)
    quarantine = Quarantine(harness.directory / "jetstream")
    names = quarantine.names()
    name = next(name for name in names if name.startswith(incarnation))
    for wrong in (name[:-1], "", "..", "../streams", f"{name}.reason", "*"):
        with pytest.raises(StoreError, match="give a whole name"):
            quarantine.purge(wrong)
    assert quarantine.names() == names
    assert quarantine.purge(name) > 0
    assert name not in quarantine.names()
    assert not list(quarantine.path.glob(f"{name}*"))
    assert harness.node.quarantined == len(names) - 1
