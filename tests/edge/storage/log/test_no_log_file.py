"""A start that finds no room for a file of the log: what is there is served, and it heals."""

import pytest

from headwater.edge.storage.format.errors import NoLogFile, StoreFull
from tests.edge.storage.twin_harness import TwinHarness, contents

ROOM = 6 << 20
SEGMENT = 256 << 10


def full_harness() -> tuple[TwinHarness, str, dict[int, bytes]]:
    """A store that came up a few times on a device where somebody takes whatever is given back."""
    harness = TwinHarness(segment_bytes=SEGMENT)
    harness.disk.capacity = ROOM
    harness.open()
    store = harness.create()
    rows: dict[int, bytes] = {}
    for n in range(100):
        payload = b"%06d" % n * 100
        rows[store.add_message(b"a", payload)] = payload
    harness.settle()
    return harness, store.incarnation, rows


def starve(harness: TwinHarness) -> None:
    """Nothing is left, and of nothing is any left over."""
    log = harness.node.log
    log.files.ballast.free()
    for slots in (log.files.spares, log.files.small):
        while slots:
            log.files.discard(slots.pop())
    harness.disk.capacity = 1


def test_reads_go_on_and_it_heals() -> None:
    harness, incarnation, rows = full_harness()
    starve(harness)
    for life in range(3):
        harness.power_cut(life, "nothing")
        store = harness.open()[incarnation]
        assert isinstance(harness.node.log.failure, NoLogFile)
        assert {seq: row[2] for seq, row in contents(store).items()} == rows
        with pytest.raises(StoreFull):
            store.add_message(b"a", b"no")
        removed = min(rows)
        store.delete(removed)
        told: list[int] = []
        lsn = harness.node.log.hand_over()
        harness.node.log.when_durable(lsn, lambda told=told: told.append(1))
        for _ in range(20):
            harness.loop.run_ready()
        assert not told, "a removal that no file has is not answered"
    harness.disk.capacity = 2 * ROOM
    harness.loop.run_until(lambda: bool(told))
    harness.loop.run_until(lambda: store.failure is None)
    last = store.add_message(b"a", b"there is room again")
    harness.settle()
    assert store.committed == last
    harness.power_cut(9, "nothing")
    found = contents(harness.open()[incarnation])
    assert found.pop(last)[2] == b"there is room again"
    del rows[removed]
    assert {seq: row[2] for seq, row in found.items()} == rows
    assert harness.node.problems == []
    harness.close()


def test_a_start_takes_a_small_slot_where_nothing_else_is_left() -> None:
    harness, incarnation, rows = full_harness()
    log = harness.node.log
    small = len(log.files.small)
    assert small >= 2
    log.files.ballast.free()
    while log.files.spares:
        log.files.discard(log.files.spares.pop())
    harness.disk.capacity = 1
    for life in range(10):
        harness.power_cut(life, "nothing")
        store = harness.open()[incarnation]
        failure = harness.node.log.failure
        assert isinstance(failure, StoreFull) and not isinstance(failure, NoLogFile), life
        assert {seq: row[2] for seq, row in contents(store).items()} == rows
    harness.close()
