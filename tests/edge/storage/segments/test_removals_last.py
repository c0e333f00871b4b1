"""A removal that is not durable has no lasting effect: not through checkpointing, compaction or
segments that are removed."""

import errno
import os

import pytest

from headwater.edge.storage.segments.file_store import FileStore
from tests.edge.storage.twin_harness import TwinHarness, contents


class FailingLog:
    """Syncs of the commit log fail from a moment on; those of other files work."""

    def __init__(self, harness: TwinHarness) -> None:
        self.failing = False
        harness.disk.watch = self.watch

    def watch(self, what: str, path: str) -> None:
        if self.failing and "/log/" in path and what == "sync":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)


def filled(harness: TwinHarness, count: int) -> FileStore:
    harness.open()
    store = harness.create()
    for n in range(count):
        store.add_message(b"s.%d" % (n % 3), b"payload %d " % n * 8)
        if n % 10 == 9:
            harness.commit()
    harness.commit()
    return store


def go_on(harness: TwinHarness) -> None:
    """Let everything happen that can."""
    for _ in range(300):
        harness.loop.run_ready()
        harness.node.kernel.turn()
        harness.loop.clock.true_ns += 20_000_000


@pytest.mark.parametrize("erase_head", [False, True])
def test_what_was_removed_without_being_durable_is_there_again(erase_head: bool) -> None:
    harness = TwinHarness()
    store = filled(harness, 130)
    before = contents(store)
    failing = FailingLog(harness)
    failing.failing = True
    if erase_head:
        store.purge(None, 40)
    else:
        for sequence in range(2, 120, 2):
            store.delete(sequence)
    harness.node.checkpointer.wake()
    go_on(harness)
    assert harness.node.log.sync_failures
    failing.failing = False
    harness.power_cut(0, "nothing")
    (again,) = harness.open().values()
    assert contents(again) == before


def test_with_a_whole_log_removals_take_their_room_back() -> None:
    harness = TwinHarness()
    store = filled(harness, 200)
    harness.settle()
    for sequence in range(2, 190, 2):
        store.delete(sequence)
    harness.settle()
    assert harness.node.compactor.rewritten
    rows = contents(store)
    harness.power_cut(0, "everything")
    (again,) = harness.open().values()
    assert contents(again) == rows
