"""A deleted stream stays away, although its files cannot be removed for a while."""

import errno
import os

import pytest

from headwater.edge.storage.directory import metas
from tests.edge.storage.twin_harness import TwinHarness


def test_a_deleted_stream_whose_files_stay() -> None:
    harness = TwinHarness()
    harness.open()
    kept, gone = harness.create("KEPT"), harness.create("GONE")
    gone.add_message(b"a", b"x")
    harness.commit()

    def watch(what: str, path: str) -> None:
        if what == "rename" and gone.incarnation in path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    harness.disk.watch = watch
    harness.node.delete_stream(gone)
    for _ in range(8):
        for n in range(60):
            kept.add_message(b"a", b"%d" % n * 40)
        harness.settle()
    assert harness.node.checkpointer.done > 4
    harness.disk.watch = None
    for _ in range(2):
        harness.power_cut(0, "everything")
        assert harness.open().keys() == {kept.incarnation}
        assert harness.node.problems == []
        harness.settle()
    streams = harness.disk.root / "data" / "jetstream" / "streams"
    assert [path.name for path in streams.iterdir()] == [kept.incarnation]


def test_a_stream_that_is_deleted_while_its_files_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = TwinHarness()
    harness.open()
    store = harness.create()
    harness.commit()
    node = harness.node
    monkeypatch.setattr(metas, "start_writing", lambda fd: node.delete_stream(store))
    monkeypatch.setattr(node.leaving, "remove", lambda *stream: None)
    node.metas.flush()
    harness.loop.run_until(lambda: store.closed)
    harness.commit()
    assert store.directory.exists()
    assert not (store.directory / "meta").exists()
    harness.power_cut(1, "nothing")
    assert harness.open() == {}
    assert harness.node.problems == []
    assert not store.directory.exists()
    harness.close()
