"""What a failed sync left in memory is not trusted: it can be read until the power is cut."""

import errno
from collections.abc import Callable

import pytest

from headwater.edge.storage.segments.file_store import FileStore
from tests.edge.storage.twin_harness import TwinHarness, contents

Rows = dict[int, bytes]


def failing(harness: TwinHarness, suffix: str) -> Callable[[], None]:
    """From now on syncs of files with this suffix fail, and after the first one everything else
    that would change such a file; returns what ends that."""
    failed = False

    def watch(what: str, path: str) -> None:
        nonlocal failed
        if path.endswith(suffix) and (what == "sync" or (failed and what not in ("read", "list"))):
            failed = True
            raise OSError(errno.EIO, "sync failed", path)

    def stop() -> None:
        harness.disk.watch = None

    harness.disk.watch = watch
    return stop


def payloads(store: FileStore) -> Rows:
    return {sequence: row[2] for sequence, row in contents(store).items()}


def publish(harness: TwinHarness, store: FileStore, count: int) -> Rows:
    """Messages that are acknowledged when this returns."""
    rows = {}
    for n in range(count):
        payload = b"%d of %d" % (n, count) * 8
        rows[store.add_message(b"a", payload)] = payload
        if n % 20 == 19:
            harness.commit()
    harness.commit()
    return rows


def prepared() -> tuple[TwinHarness, str, Rows]:
    """A store with messages in segments."""
    harness = TwinHarness()
    harness.open()
    store = harness.create()
    rows = publish(harness, store, 120)
    harness.settle()
    return harness, store.incarnation, rows


@pytest.mark.parametrize("restarts", [1, 2])
def test_a_segment_whose_sync_failed_is_written_again_at_the_next_start(restarts: int) -> None:
    harness, incarnation, rows = prepared()
    failing(harness, ".seg")
    store = harness.streams[incarnation]
    sizes = {path: path.stat().st_size for path in store.directory.glob("*.seg")}
    rows |= publish(harness, store, 120)
    assert any(
        path.stat().st_size > sizes.get(path, 0) for path in store.directory.glob("*.seg")
    )
    for _ in range(restarts):
        harness.disk.kill()
        harness.disk.watch = None
        harness.loop.drop()
        store = harness.open()[incarnation]
        assert harness.node.problems == []
        assert payloads(store) == rows
    harness.node.log.begin_next()
    harness.node.checkpointer.before = harness.node.log.live[-1].number
    harness.node.checkpointer.wake()
    harness.loop.run_until(lambda: len(harness.node.log.live) == 1)
    harness.commit()
    harness.power_cut(1, "everything")
    store = harness.open()[incarnation]
    assert harness.node.problems == []
    assert payloads(store) == rows
    harness.close()


def test_a_segment_that_cannot_be_synced_at_a_start_either_is_left_to_the_log() -> None:
    harness, incarnation, rows = prepared()
    failing(harness, ".seg")
    store = harness.streams[incarnation]
    sizes = {path: path.stat().st_size for path in store.directory.glob("*.seg")}
    rows |= publish(harness, store, 120)
    assert any(
        path.stat().st_size > sizes.get(path, 0) for path in store.directory.glob("*.seg")
    )
    harness.disk.kill()
    harness.loop.drop()
    failures = 0

    def once(what: str, path: str) -> None:
        nonlocal failures
        if what == "sync" and path.endswith(".seg") and not failures:
            failures += 1
            raise OSError(errno.EIO, "sync failed", path)

    harness.disk.watch = once
    store = harness.open()[incarnation]
    assert failures == 1
    assert harness.node.problems == []
    assert payloads(store) == rows
    harness.settle()
    harness.power_cut(1, "everything")
    store = harness.open()[incarnation]
    assert harness.node.problems == []
    assert payloads(store) == rows
    harness.close()


@pytest.mark.parametrize("suffix", [".seg", ".log"])
def test_an_erased_message_is_overwritten_again_after_a_failed_sync(suffix: str) -> None:
    harness, incarnation, _ = prepared()
    store = harness.streams[incarnation]
    secret = b"nobody shall read this"
    sequence = store.add_message(b"a", secret)
    harness.commit()
    if suffix == ".seg":
        publish(harness, store, 200)
        harness.settle()
    stop = failing(harness, suffix)
    store.delete(sequence, True)
    harness.kernel.turn()
    end = harness.loop.time() + 3
    harness.loop.call_later(3, int)
    harness.loop.run_until(lambda: harness.loop.time() >= end)
    assert harness.node.eraser.erased == 0
    harness.disk.kill()
    harness.loop.drop()
    stop()
    harness.open()
    harness.loop.run_until(lambda: not harness.node.eraser._pending)
    harness.commit()
    harness.power_cut(1, "everything")
    for parts, file in harness.disk.walk():
        assert secret not in file.content, parts
    harness.open()
    assert harness.node.problems == []
    harness.close()


def test_the_log_keeps_a_stream_whose_name_cannot_be_synced() -> None:
    harness, _, _ = prepared()
    failed = []

    def watch(what: str, path: str) -> None:
        if what == "sync names" and path.endswith("streams"):
            failed.append(path)
            raise OSError(errno.EIO, "sync failed", path)

    harness.disk.watch = watch
    store = harness.create("T")
    assert store.add_message(b"a", b"x") == 1
    harness.commit()
    harness.loop.run_until(lambda: len(failed) > 3)
    assert harness.node.metas.is_pending(store.directory)
    harness.power_cut(1, "everything")
    harness.disk.watch = None
    assert payloads(harness.open()[store.incarnation]) == {1: b"x"}
    harness.settle()
    assert harness.node.metas.idle
    harness.power_cut(1, "everything")
    assert payloads(harness.open()[store.incarnation]) == {1: b"x"}
    harness.close()
