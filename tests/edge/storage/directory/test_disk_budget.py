"""The allocation of allocated bytes is right, and a used-up budget is like a full disk."""

import pytest

from headwater.edge.storage.device.durable_file import TwoCopyFile
from headwater.edge.storage.directory.disk_budget import least_budget
from headwater.edge.storage.format.errors import StoreError, StoreFull
from tests.edge.storage.device.test_full_disk import fill
from tests.edge.storage.twin_harness import TwinHarness, contents

SEGMENT = 64 << 10
BUDGET = 4 << 20


def taken(harness: TwinHarness) -> int:
    """Blocks of every file that has a name."""
    return sum(node.blocks() for _, node in harness.disk.walk())


def in_streams(harness: TwinHarness) -> int:
    """The same of streams only."""
    return sum(node.blocks() for parts, node in harness.disk.walk() if "streams" in parts)


def breathe(harness: TwinHarness) -> None:
    harness.kernel.turn()
    harness.loop.run_until(lambda: not harness.node.log.congested)


def check(harness: TwinHarness) -> None:
    harness.settle()
    allocation = harness.node.disk.allocation
    assert allocation.used == taken(harness)
    for store in harness.streams.values():
        files = list(store.directory.iterdir())
        assert harness.node.disk.stream_bytes(store) == sum(p.allocated_bytes() for p in files)


@pytest.mark.parametrize("compressed", [False, True])
def test_the_book_agrees_with_the_disk_whatever_is_done(compressed: bool) -> None:
    harness = TwinHarness(segment_bytes=SEGMENT, compressed=compressed)
    harness.open()
    check(harness)
    store, other = harness.create("A"), harness.create("B")
    for n in range(3000):
        store.add_message(b"a.%d" % (n % 7), b"%04d" % n * 100)
        other.add_message(b"b", b"x" * 50)
        if n % 100 == 0:
            breathe(harness)
    check(harness)
    grown = in_streams(harness)
    for sequence in range(1, 1500, 2):
        store.delete(sequence)
    store.delete(1600, True)
    check(harness)
    store.purge(b"a.3", 0)
    harness.node.delete_stream(other)
    del harness.streams[other.incarnation]
    check(harness)
    assert in_streams(harness) < grown
    incarnation = store.incarnation
    harness.close()
    before = taken(harness)
    harness.open()
    check(harness)
    harness.streams[incarnation].purge(None, 0)
    check(harness)
    assert harness.node.disk.allocation.used < before
    harness.power_cut(3)
    harness.open()
    check(harness)
    harness.close()
    meta = harness.disk.root / "data/jetstream/streams" / incarnation / "meta"
    TwoCopyFile(meta).replace(b"newer than what the log has, and nonsense")
    harness.open()
    assert harness.node.quarantined
    harness.streams = {}
    check(harness)
    for name in harness.node.quarantine.names():
        harness.node.quarantine.purge(name)
    check(harness)
    harness.close()


def test_a_used_up_budget_refuses_messages_and_heals() -> None:
    harness = TwinHarness(segment_bytes=SEGMENT)
    harness.options.disk_budget = BUDGET
    most = 0

    def watch(what: str, path: str) -> None:
        nonlocal most
        most = max(most, taken(harness))

    harness.open()
    incarnation = harness.create().incarnation
    harness.disk.watch = watch
    rows = fill(harness, harness.streams[incarnation])
    assert len(rows) * 600 > BUDGET // 2
    for life in range(6):
        harness.power_cut(life, "nothing")
        store = harness.open()[incarnation]
        found = {seq: payload for seq, (_, _, payload) in contents(store).items()}
        assert {seq: found.get(seq) for seq in rows} == rows, life
        sequence = min(rows)
        store.delete(sequence)
        del rows[sequence]
        harness.node.log.add_delta(b"consumer", b"c", b"%d" % life)
        harness.settle()
        check(harness)
    store.purge(None, 0)
    harness.commit()
    harness.loop.run_until(lambda: store.failure is None)
    assert len(fill(harness, store)) * 600 > BUDGET // 2
    assert most <= BUDGET
    harness.close()


def test_a_budget_below_what_is_stored_lets_go_of_it_only() -> None:
    harness = TwinHarness(segment_bytes=SEGMENT)
    harness.open()
    store = harness.create()
    for n in range(10_000):
        store.add_message(b"a", b"%06d" % n * 100)
        if n % 100 == 0:
            breathe(harness)
    harness.settle()
    assert harness.node.disk.allocation.used > BUDGET
    harness.options.disk_budget = BUDGET
    for life in range(4):
        harness.power_cut(life)
        store = harness.open()[store.incarnation]
        assert store.messages == 10_000
        with pytest.raises(StoreFull, match="disk budget"):
            store.add_message(b"a", b"")
        harness.commit()
    before = harness.node.disk.allocation.used
    store.purge(None, 9000)
    harness.settle()
    harness.loop.run_until(lambda: store.failure is None)
    assert harness.node.disk.allocation.used < BUDGET < before
    store.add_message(b"a", b"")
    harness.node.disk.set(harness.node.disk.allocation.used - 1)
    harness.close()


def test_a_budget_that_is_too_small_says_what_the_least_is() -> None:
    harness = TwinHarness(segment_bytes=SEGMENT)
    least = least_budget(SEGMENT)
    harness.options.disk_budget = least - 1
    with pytest.raises(StoreError, match=f"the least is {least}"):
        harness.open()
    harness.options.disk_budget = least
    harness.open()
    rows = fill(harness, harness.create())
    assert rows
    harness.close()
