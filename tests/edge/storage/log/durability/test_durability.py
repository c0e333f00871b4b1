"""When acks come and when syncs happen: streams of every durability on one commit log."""

import errno
import os
import random

import pytest

from headwater.edge.storage.format.durability import Durability
from headwater.edge.storage.format.errors import StoreFailed
from headwater.edge.storage.format.problem import ProblemKind
from headwater.edge.storage.segments.file_store import FileStore
from tests.edge.storage.twin_harness import TwinHarness, contents

INTERVAL = Durability(interval=True, seconds=30.0)
GATHERED = Durability(seconds=0.2)


class Node:
    """A store whose clock stands still unless it is told to go on."""

    def __init__(self, segment_bytes: int = 65536) -> None:
        self.harness = TwinHarness(segment_bytes=segment_bytes)
        self.harness.open()
        self.sent = 0

    def create(self, name: str, durability: Durability | None = None) -> FileStore:
        store = self.harness.create(name)
        self.harness.node.set_durability(store, durability)
        self.harness.settle()
        return store

    def append(self, store: FileStore, count: int = 1) -> None:
        for _ in range(count):
            self.sent += 1
            store.add_message(b"a", b"%d" % self.sent)

    def turns(self, count: int = 4) -> None:
        """Let everything happen that needs no time."""
        for _ in range(count):
            self.harness.kernel.turn()
            self.harness.loop.run_ready()
        assert self.harness.errors == [], self.harness.errors

    def wait(self, seconds: float) -> None:
        """Let time go on."""
        loop = self.harness.loop
        end = loop.time() + seconds
        loop.call_at(end, int)
        loop.run_until(lambda: loop.time() >= end)
        self.turns()

    @property
    def syncs(self) -> int:
        return self.harness.node.log.numbers()["syncs"]


def test_interval_acks_come_with_the_write_and_syncs_by_the_clock() -> None:
    node = Node()
    store = node.create("I", INTERVAL)
    before = node.syncs
    for n in range(1, 6):
        node.append(store, 10)
        node.turns()
        assert store.committed == 10 * n
        node.wait(1.0)
    assert node.syncs == before
    assert node.harness.node.log.unsynced > 0
    node.wait(30.0)
    assert node.syncs == before + 1
    assert node.harness.node.log.unsynced == 0
    node.wait(120.0)
    assert node.syncs == before + 1, "what is synced is not synced again"


def test_one_fsync_message_syncs_what_was_written_before() -> None:
    node = Node()
    lazy, strict = node.create("I", INTERVAL), node.create("F")
    node.append(lazy, 5)
    node.turns()
    before = node.syncs
    node.append(strict)
    node.append(lazy)
    node.turns()
    assert (lazy.committed, strict.committed) == (6, 1)
    assert node.syncs == before + 1
    assert node.harness.node.log.unsynced == 0


def test_max_delay_gathers_syncs_and_acks_after_them() -> None:
    node = Node()
    store = node.create("G", GATHERED)
    before = node.syncs
    for n in range(10):
        node.append(store)
        node.turns()
        assert store.committed == 0
        assert node.syncs == before
        if n < 9:
            node.wait(0.018)
    node.wait(0.03)
    assert store.committed == 10
    assert node.syncs == before + 1


def test_whoever_waits_for_a_sync_does_not_wait_for_the_clock() -> None:
    node = Node()
    store = node.create("I", INTERVAL)
    log = node.harness.node.log
    node.append(store)
    node.turns()
    before, found = node.syncs, []
    log.when_written(log.hand_over(), lambda: found.append("written"))
    assert found == ["written"]
    log.when_durable(log.hand_over(), lambda: found.append("durable"))
    node.turns()
    assert found == ["written", "durable"]
    assert node.syncs == before + 1


def test_removals_and_states_of_an_interval_stream_cause_no_sync() -> None:
    node = Node()
    store = node.create("I", INTERVAL)
    node.append(store, 20)
    node.turns()
    before = node.syncs
    log = node.harness.node.log
    store.delete(5)
    store.purge(None, 3)
    log.add_delta(b"o", b"k", b"1", store.sync_delay_ns)
    log.put_state(b"o", b"k", b"2", store.sync_delay_ns)
    found: list[str] = []
    log.when_written(log.hand_over(True), lambda: found.append("written"))
    node.turns()
    assert found == ["written"]
    assert node.syncs == before
    log.put_state(b"o", b"other", b"3")
    node.turns()
    assert node.syncs == before + 1


def test_a_stricter_durability_syncs_what_is_there() -> None:
    node = Node()
    store = node.create("I", INTERVAL)
    node.append(store, 3)
    node.turns()
    before = node.syncs
    node.harness.node.set_durability(store, Durability())
    node.turns()
    assert node.syncs == before + 1
    assert node.harness.node.log.unsynced == 0
    node.append(store)
    node.turns()
    assert store.committed == 4
    assert node.syncs == before + 2


def test_too_many_batches_are_not_kept_waiting() -> None:
    node = Node(segment_bytes=1 << 23)
    node.harness.options.numbered_elsewhere = lambda meta: True
    store = node.create("I", Durability(interval=True, seconds=1e6))
    before = node.syncs
    for _ in range(17_000):
        node.append(store)
        node.harness.kernel.turn()
        node.harness.loop.run_ready()
    node.turns()
    assert store.committed == 17_000
    assert node.syncs == before + 1


def test_what_a_failed_sync_held_is_written_again() -> None:
    node = Node()
    harness = node.harness
    store = node.create("I", INTERVAL)
    node.append(store, 50)
    harness.commit()
    node.append(store, 50)
    node.turns()
    assert store.committed == 100
    failing = True

    def watch(what: str, path: str) -> None:
        if failing and what == "sync" and "/log/" in path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    harness.disk.watch = watch
    harness.loop.call_later(31.0, int)
    harness.loop.run_until(lambda: store.failure is not None)
    assert isinstance(store.failure, StoreFailed)
    assert store.committed == 100
    with pytest.raises(StoreFailed):
        node.append(store)
    failing = False
    harness.loop.run_until(lambda: store.failure is None)
    harness.power_cut(0, "everything")
    (store,) = harness.open().values()
    assert [row[2] for row in contents(store).values()] == [b"%d" % n for n in range(1, 101)]
    assert store.lost == {}


@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_takes_a_tail_of_an_interval_stream(seed: int) -> None:
    node = Node(segment_bytes=8192)
    harness = node.harness
    lazy, strict = node.create("I", INTERVAL), node.create("F")
    lazy_id, strict_id = lazy.incarnation, strict.incarnation
    for n in range(120 + 7 * seed):
        node.append(lazy, 1 + n % 3)
        if n == 60:
            node.append(strict)
        node.turns(2)
        if n == 80:
            harness.commit()
            synced = lazy.last_seq
    submitted = contents(lazy)
    assert lazy.committed == lazy.last_seq
    harness.power_cut(seed, "some")
    found = harness.open()
    kept = contents(found[lazy_id])
    assert list(kept) == list(range(1, len(kept) + 1)), "a prefix"
    assert len(kept) >= synced
    assert all(submitted[at] == row for at, row in kept.items())
    assert len(contents(found[strict_id])) == 1
    assert not found[lazy_id].lost


def test_sequences_that_a_power_cut_took_are_not_given_out_again() -> None:
    node = Node()
    harness = node.harness
    store = node.create("I", INTERVAL)
    node.append(store, 50)
    harness.commit()
    node.append(store, 50)
    node.turns()
    assert store.committed == 100
    harness.power_cut(0, "everything")
    (store,) = harness.open().values()
    assert list(contents(store)) == list(range(1, 51))
    assert store.last_seq >= 100
    assert store.lost == {}
    (problem,) = harness.node.problems
    assert "was found up to sequence 50" in problem.text
    assert "may have taken acknowledged messages" in problem.text
    assert problem.kind == ProblemKind.LOST and problem.stream and problem.since
    harness.node.set_durability(store, INTERVAL)
    node.append(store)
    node.turns()
    at = store.last_seq
    assert at > 100
    assert store.committed == at
    harness.commit()
    harness.power_cut(0, "everything")
    (store,) = harness.open().values()
    assert store.get(at).payload == b"101"
    assert store.last_seq > at


@pytest.mark.parametrize("how", ["kill", "clean"])
def test_the_end_of_the_process_takes_no_sequences(how: str) -> None:
    node = Node()
    harness = node.harness
    store = node.create("I", INTERVAL)
    node.append(store, 100)
    node.turns()
    assert store.committed == 100
    if how == "kill":
        harness.loop.drop()
        harness.disk.kill()
    else:
        harness.close()
        harness.disk.boot = b"another"
    (store,) = harness.open().values()
    assert store.last_seq == len(contents(store)) == 100
    assert harness.node.problems == []


def test_what_was_killed_and_found_is_safe_from_the_next_power_cut() -> None:
    node = Node()
    harness = node.harness
    store = node.create("I", INTERVAL)
    node.append(store, 100)
    node.turns()
    harness.loop.drop()
    harness.disk.kill()
    harness.open()
    node.turns()
    harness.power_cut(0, "everything")
    (store,) = harness.open().values()
    assert len(contents(store)) == 100


def test_more_sequences_are_reserved_in_time() -> None:
    node = Node(segment_bytes=1 << 23)
    harness = node.harness
    store = node.create("I", INTERVAL)
    before = node.syncs
    for n in range(1, 61):
        node.append(store, 100)
        node.turns(3)
        assert store.committed == 100 * n, n
        assert store.reserved_to >= store.committed
    assert node.syncs <= before + 5, "steps grow"
    node.append(store, 10_000)
    node.turns(3)
    assert store.committed == store.last_seq
    last = store.last_seq
    harness.power_cut(0, "everything")
    (store,) = harness.open().values()
    assert store.last_seq >= last


def test_a_mirror_takes_its_sequences_again() -> None:
    node = Node()
    harness = node.harness
    harness.options.numbered_elsewhere = lambda meta: True
    store = node.create("M", INTERVAL)
    node.append(store, 50)
    harness.commit()
    node.append(store, 50)
    node.turns()
    assert store.committed == 100
    harness.power_cut(0, "everything")
    (store,) = harness.open().values()
    assert store.last_seq == 50


def test_fsync_streams_reserve_nothing() -> None:
    node = Node()
    harness = node.harness
    store = node.create("F", INTERVAL)
    node.append(store, 10)
    harness.node.set_durability(store, Durability())
    node.append(store, 10)
    harness.commit()
    assert harness.node.log.states(store.incarnation.encode()) == {}
    harness.power_cut(0, "everything")
    (store,) = harness.open().values()
    assert store.last_seq == 20
    assert harness.node.problems == []


def test_what_is_written_while_sequences_are_reserved_is_acknowledged_then() -> None:
    node = Node()
    harness = node.harness
    store = harness.create("I")
    harness.commit()
    log = harness.node.log
    log.stepper._done = int  # the loop is late: it sees both batches' results at once
    harness.node.set_durability(store, INTERVAL)
    harness.loop.run_ready()
    harness.loop.run_ready()
    node.append(store)
    log.hand_over()
    harness.loop.run_ready()
    harness.loop.run_ready()
    assert store.committed == 0
    log.drain_results()
    assert store.committed == store.last_seq == 1
    assert log.unsynced > 0


@pytest.mark.parametrize("seed", range(6))
def test_progress_is_never_ahead_of_the_messages(seed: int) -> None:
    node = Node(segment_bytes=8192)
    harness = node.harness
    store = node.create("I", INTERVAL)
    owner = store.incarnation.encode()
    log = harness.node.log
    log.put_state(owner, b"c", b"0", store.sync_delay_ns)
    for n in range(1, 150):
        node.append(store)
        node.turns(2)
        log.put_state(owner, b"c", b"%d" % n, store.sync_delay_ns)
        node.turns(2)
        if n == 40:
            harness.commit()
    harness.power_cut(seed, "some")
    (store,) = harness.open().values()
    value, _ = harness.node.log.states(owner)[b"c"]
    assert 40 <= int(value) <= len(contents(store))


@pytest.mark.parametrize(("seed", "size"), [(1, 3000), (15, 9000), (36, 3000), (47, 9000)])
def test_what_a_slot_held_before_does_not_look_like_damage(seed: int, size: int) -> None:
    """Large messages in slots that were used before: what is lost of a body shows no record."""
    node = Node()
    harness = node.harness
    chance = random.Random(seed)
    sent: dict[int, bytes] = {}
    deleted: set[int] = set()
    store = node.create("I", INTERVAL)
    for n in range(60 + seed * 2):
        data = chance.randbytes(size + n % 64)
        sent[store.add_message(b"a", data)] = data
        if n % 3 == 0 and store.delete(max(1, n - 19)):
            deleted.add(max(1, n - 19))
        node.turns(2)
    harness.power_cut(seed, "some")
    (store,) = harness.open().values()
    kept = {at: row[2] for at, row in contents(store).items()}
    assert store.lost == {}
    assert kept == {at: sent[at] for at in kept}
    assert set(range(1, max(kept))) - set(kept) <= deleted, "only a tail is gone"
