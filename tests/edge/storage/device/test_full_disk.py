"""A disk without any room: starts go on after crashes, nothing is lost, and it heals."""

import errno

import pytest

from headwater.edge.ports.twins.chance import SeededRandom
from headwater.edge.storage.format.errors import StoreFull
from headwater.edge.storage.segments.file_store import FileStore
from tests.edge.storage.twin_harness import TwinHarness, contents

ROOM = 6 << 20
SEGMENT = 256 << 10


def fill(harness: TwinHarness, store: FileStore) -> dict[int, bytes]:
    """Messages until there is no room for one; returns what was acknowledged."""
    rows: dict[int, bytes] = {}
    log = harness.node.log
    with pytest.raises(StoreFull):
        for n in range(50_000):
            payload = b"%06d" % n * 100
            rows[store.add_message(b"a", payload)] = payload
            if n % 100 == 0:
                harness.kernel.turn()
                harness.loop.run_until(lambda: not log.congested or log.failure is not None)
    harness.loop.run_until(harness.resting)
    harness.commit()
    return {sequence: row for sequence, row in rows.items() if sequence <= store.committed}


@pytest.mark.parametrize("lose", ["nothing", "some", "everything"])
def test_crashes_on_a_full_disk_lose_nothing_and_it_heals(lose: str) -> None:
    harness = TwinHarness(segment_bytes=SEGMENT)
    harness.disk.capacity = ROOM
    harness.open()
    incarnation = harness.create().incarnation
    rows = fill(harness, harness.streams[incarnation])
    assert len(rows) > ROOM // 2 // 700
    assert harness.node.log.files.ballast.held >= SEGMENT
    for life in range(12):
        harness.disk.capacity = max(harness.disk.used, 1)
        harness.power_cut(life, lose)
        store = harness.open()[incarnation]
        found = {seq: payload for seq, (_, _, payload) in contents(store).items()}
        assert {seq: found.get(seq) for seq in rows} == rows, life
        assert harness.node.problems == []
        sequence = min(rows)
        store.delete(sequence)
        del rows[sequence]
        harness.node.log.add_delta(b"consumer", b"c", b"%d" % life)
        harness.kernel.turn()
        if life % 3:
            harness.settle()
    harness.disk.capacity = 2 * ROOM
    harness.loop.run_until(lambda: store.failure is None)
    last = store.add_message(b"a", b"there is room again")
    harness.settle()
    assert store.committed == last
    assert harness.node.log.files.ballast.there
    harness.close()
    assert contents(harness.open()[incarnation])[last][2] == b"there is room again"
    harness.close()


def test_a_purge_on_a_full_disk_makes_room() -> None:
    harness = TwinHarness(segment_bytes=SEGMENT)
    harness.disk.capacity = ROOM
    harness.open()
    store = harness.create()
    fill(harness, store)
    harness.disk.capacity = harness.disk.used
    store.purge(None, 0)
    harness.commit()
    harness.disk.capacity = ROOM
    harness.loop.run_until(lambda: store.failure is None)
    rows = fill(harness, store)
    assert len(rows) > ROOM // 2 // 700


@pytest.mark.parametrize("seed", range(3))
def test_starts_that_end_at_any_moment_do_not_use_up_what_is_held_back(seed: int) -> None:
    chance = SeededRandom(seed)
    harness = TwinHarness(segment_bytes=SEGMENT)
    harness.disk.capacity = ROOM
    harness.open()
    incarnation = harness.create().incarnation
    rows = fill(harness, harness.streams[incarnation])
    for life in range(60):
        harness.disk.capacity = max(harness.disk.used, harness.disk.capacity - (ROOM >> 4))
        harness.power_cut(life, "nothing")
        store = harness.open()[incarnation]
        assert harness.node is not None and harness.node.problems == []
        assert store.last_seq == max(rows), life
        for _ in range(chance.below(12)):
            harness.loop.run_ready()
    found = {seq: payload for seq, (_, _, payload) in contents(store).items()}
    assert found == rows


def test_streams_without_files_yet_are_served_from_a_full_disk() -> None:
    harness = TwinHarness(segment_bytes=SEGMENT)
    harness.disk.capacity = ROOM
    harness.open()
    made = harness.create("A")
    harness.settle()
    harness.node.metas.stopped = True
    fresh = harness.create("B")
    harness.node.update_meta(made, b'{"changed":1}')
    rows = fill(harness, made)
    for life in range(6):
        harness.disk.capacity = max(harness.disk.used, 1)
        harness.power_cut(life, "everything")
        found = harness.open()
        assert harness.node.problems == []
        assert set(found) == {made.incarnation, fresh.incarnation}
        assert len(contents(found[made.incarnation])) >= len(rows)
        assert harness.node.meta_of(found[made.incarnation]) == b'{"changed":1}'
        harness.loop.run_until(lambda: harness.node.metas.idle or harness.node.metas._failed)
    harness.disk.capacity = 2 * ROOM
    harness.loop.run_until(lambda: harness.node.metas.idle)
    assert fresh.directory.exists()
    harness.close()
    assert fresh.incarnation in harness.open()
    harness.close()


def test_segments_outlive_the_failure_of_the_file_that_makes_their_directory() -> None:
    harness = TwinHarness()
    harness.open()
    store = harness.create()
    meta = store.directory / "meta"

    def watch(what: str, path: str) -> None:
        if what == "create" and path.startswith(str(meta)):
            raise OSError(errno.ENOSPC, "no room", path)

    harness.disk.watch = watch
    rows = {}
    for n in range(60):
        rows[store.add_message(b"a", b"%03d" % n * 100)] = b"%03d" % n * 100
        harness.commit()
    harness.loop.run_until(lambda: harness.node.checkpointer.done > 0)
    assert store.directory.exists() and not meta.exists()
    harness.commit()
    harness.disk.watch = None
    harness.power_cut(0, "everything")
    (found,) = harness.open().values()
    assert harness.node.problems == []
    assert {sequence: row[2] for sequence, row in contents(found).items()} == rows


def remove(store: FileStore, how: str) -> None:
    """Take out most of what a store has."""
    if how == "delete":
        for sequence in range(store.first_seq, store.last_seq + 1):
            if sequence % 5:
                store.delete(sequence)
    else:
        store.purge(None, None, 20 if how == "keep" else None)


@pytest.mark.parametrize("how", ["purge", "keep", "delete"])
def test_removals_from_many_small_streams_give_room_back(how: str) -> None:
    harness = TwinHarness(segment_bytes=SEGMENT)
    harness.disk.capacity = ROOM
    harness.open()
    stores = [harness.create(f"S{n}") for n in range(40)]
    log, stored = harness.node.log, 0
    with pytest.raises(StoreFull):
        for n in range(50_000):
            stores[n % 40].add_message(b"a", b"%06d" % n * 100)
            stored += 1
            if n % 100 == 0:
                harness.kernel.turn()
                harness.loop.run_until(lambda: not log.congested or log.failure is not None)
    harness.loop.run_until(harness.resting)
    harness.commit()
    # A rewritten file is there beside the old one for a moment.
    harness.disk.capacity = harness.disk.used + (0 if how == "purge" else SEGMENT // 2)
    assert stored // 40 * 700 < SEGMENT, "each stream has one segment"
    for store in stores[::2]:
        remove(store, how)
    harness.commit()
    harness.loop.run_until(lambda: log.failure is None)
    kept, left = contents(stores[1]), contents(stores[2])
    last = stores[0].add_message(b"a", b"there is room again")
    harness.settle()
    harness.close()
    found = harness.open()
    assert harness.node.problems == []
    assert contents(found[stores[0].incarnation])[last][2] == b"there is room again"
    assert contents(found[stores[1].incarnation]) == kept
    assert contents(found[stores[2].incarnation]) == left
    harness.close()
