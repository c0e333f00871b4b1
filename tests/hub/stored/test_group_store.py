"""Raft groups in a node's store: what a start finds after stops, power cuts and damage."""

import errno
import os
from dataclasses import replace

import pytest

from headwater.edge.storage.format.errors import StoreFull
from headwater.hub.raft.model.entry import Entry
from headwater.hub.raft.model.hard_state import HardState
from headwater.hub.raft.model.message import Kind, Message
from headwater.hub.raft.model.ready import Ready, bootstrap
from headwater.hub.raft.model.snapshot import Snapshot
from headwater.hub.raft.multi_raft import WriteSet
from headwater.hub.stored.arrival import Arrival
from headwater.hub.stored.group_log import GroupLog, encode_run
from headwater.hub.stored.sending import Sending
from tests.hub.stored.stored_harness import StoredNode


def entries(first: int, last: int, term: int = 2) -> list[Entry]:
    return [Entry(term, index, 0, b"%d/%d" % (term, index)) for index in range(first, last + 1)]


def test_entries_become_messages_and_are_there_after_a_clean_stop() -> None:
    node = StoredNode().open(first=True)
    raft = node.lead()
    node.propose(20)
    assert len(node.rows()) == 20
    assert node.store.replicas[1].applied == raft.log.last
    rows, last = node.rows(), raft.log.last
    node.stop()
    again = node.open()
    assert again.store.start.clean
    assert not again.raft().recovering
    assert again.rows() == rows
    assert again.raft().log.last == last
    again.lead()
    again.propose(5)
    assert [row[0] for row in again.rows()] == list(range(1, 26))


def test_a_clean_stop_record_counts_once() -> None:
    node = StoredNode().open(first=True)
    node.lead()
    node.stop()
    node.open()
    node.cut()
    assert not node.open().store.start.clean


def test_what_was_told_is_there_after_any_power_cut() -> None:
    for seed in range(12):
        node = StoredNode().open(first=True)
        node.lead()
        for _ in range(seed + 1):
            node.propose(7)
        rows, applied = node.rows(), node.store.replicas[1].applied
        node.cut(seed, ("some", "everything", "nothing")[seed % 3])
        node.open()
        replica = node.store.replicas[1]
        assert node.store.start.problems == []
        assert not node.store.start.clean
        assert node.raft().log.last >= applied
        behind = [entry for entry in node.raft().log.entries if entry.index <= applied]
        assert replica.applied + len(behind) >= applied
        replica.apply(behind)
        assert (replica.applied, node.rows()) == (applied, rows)


def test_the_log_is_compacted_and_retired() -> None:
    node = StoredNode().open(first=True)
    raft = node.lead()
    for _ in range(60):
        node.propose(25)
        node.store.compact(raft)
    node.loop.run_until(lambda: node.node.checkpointer.step == "idle")
    assert node.node.checkpointer.done > 3
    assert not raft.log.entries
    node.settle()
    rows, last = node.rows(), raft.log.last
    node.cut(3)
    node.open()
    assert node.store.start.problems == []
    assert (node.raft().log.last, node.rows()) == (last, rows)


def test_many_groups_share_a_sync() -> None:
    groups = tuple(range(1, 21))
    node = StoredNode().open(first=True, groups=groups)
    for group in groups:
        node.lead(group)
    before = node.disk.syncs
    for group in groups:
        raft = node.raft(group)
        raft.propose([b"x"])
        node.multi_raft.touch(raft)
    node.step()
    assert all(len(node.rows(group)) == 1 for group in groups)
    assert node.disk.syncs - before <= 8


def test_a_replica_with_lost_messages_asks_the_group() -> None:
    node = StoredNode().open(first=True)
    node.lead()
    node.propose(20)
    node.settle()
    node.cut(0, "nothing")
    for parts, file in node.disk.walk():
        at = bytes(file.content).find(b"entry 12")
        while at >= 0 and parts[-1].startswith("slot"):
            node.disk.flip(parts, at, 0)
            at = bytes(file.content).find(b"entry 12", at + 1)
    node.open()
    assert any("lost" in str(problem) for problem in node.store.start.problems)
    assert not node.store.start.clean
    assert node.raft().recovering
    assert node.raft().log.last == 0
    assert node.store.replicas[1].store is None


def write_batch(node: StoredNode, ready: Ready) -> None:
    node.store.on_synced = lambda number: None
    node.store.write(WriteSet(1, [(node.raft(), ready)]))


def arrived(node: StoredNode, snapshot: Snapshot) -> None:
    """What the node has comes to it again, as of another index."""
    replica = node.store.replicas[1]
    sending = Sending((1, 1), replica, 0.0, lambda store: b"1")
    arrival = Arrival(
        node.node.log, lambda: node.store.make_stream(1), 0.0, node.node.update_meta
    )
    while not arrival.complete:
        part = sending.part(arrival.position, 1000)
        assert part is not None
        end = part.snapshot
        m = Message(Kind.SNAPSHOT, 2, 1, term=1, context=1, offset=part.position, hint=part.next)
        m.part, m.size, m.digest = part.data, part.size, part.digest
        m.index, m.config = (snapshot.index, end.config) if end else (0, None)
        arrival.keep(m)
    node.store.transfers.arrivals[1] = arrival


@pytest.mark.parametrize(("index", "term"), [(100, 9), (5, 9)])
def test_what_follows_a_snapshot_is_kept_though_the_log_never_heard_of_it(
    index: int, term: int
) -> None:
    """The power goes when a snapshot counts, and before the log says so: its index may be behind
    the end of the log that is there, or that of another entry."""
    node = StoredNode().open(first=True)
    node.lead()
    node.propose(20)
    node.settle()
    replica = node.store.replicas[1]
    snapshot = replace(replica.snapshot(), index=index, term=term)
    arrived(node, snapshot)
    write_batch(node, Ready(1, snapshot=snapshot))
    node.store.pump = lambda: None  # type: ignore[method-assign]
    node.loop.run_until(lambda: node.store._installing is None)
    node.cut(0, "everything")
    node.open()
    assert node.raft().log.base_index == node.raft().log.last == index
    after = entries(index + 1, index + 3, term)
    write_batch(node, Ready(1, entries=after, before_term=term))
    node.settle()
    node.cut(0, "everything")
    node.open()
    assert node.store.start.problems == []
    assert node.raft().log.entries == after


def test_a_run_that_does_not_fit_is_left_out() -> None:
    group_log = GroupLog()
    group_log.put(encode_run(1, 1, 1, []))
    group_log.add(encode_run(1, 1, 1, entries(2, 10)))
    group_log.add(encode_run(6, 3, 1, entries(7, 8, term=3)))
    assert group_log.torn
    assert group_log.entries == entries(2, 10)
    group_log.add(encode_run(4, 2, 3, entries(5, 6, term=3)))
    assert group_log.entries == entries(2, 4) + entries(5, 6, term=3)
    assert (group_log.behind(4, 2), group_log.behind(6, 2)) == (entries(5, 6, term=3), [])


def test_a_run_that_reaches_behind_the_base_counts_from_there() -> None:
    group_log = GroupLog()
    group_log.put(encode_run(5, 2, 5, entries(6, 7)))
    group_log.add(encode_run(1, 1, 1, entries(2, 8)))
    assert not group_log.torn
    assert group_log.entries == entries(6, 8)
    group_log.add(encode_run(1, 1, 1, entries(2, 4)))
    assert group_log.entries == entries(6, 8)


def test_a_group_begins_when_its_disk_has_room_again() -> None:
    """Who waits for the same sync is released all the same."""
    node = StoredNode().open(first=True)
    released: list[str] = []
    node.disk.capacity = node.disk.used
    first = bootstrap(node.config, node.number)
    node.store.create(2, first, lambda: released.append("group 2"))
    node.node.log.when_durable(node.node.log.hand_over(), lambda: released.append("the next"))
    node.loop.run_until(lambda: "the next" in released)
    assert released == ["the next"]
    node.disk.capacity = 0
    node.loop.run_until(lambda: "group 2" in released)
    assert node.errors == []


def refuse_syncs_of_hard_states(node: StoredNode) -> list[str]:
    """Until `watch` is taken away; returns what was refused so far."""
    refused: list[str] = []

    def refuse(what: str, path: str) -> None:
        if what == "sync" and "raft.hard" in path:
            refused.append(path)
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    node.disk.watch = refuse
    return refused


def vote(node: StoredNode) -> WriteSet:
    """The group's member votes for itself, and that is on its way to the disk."""
    raft = node.raft()
    while not raft.vote:
        node.multi_raft.touch(raft)
        node.multi_raft.tick(0)
    write_set = node.multi_raft.ready()
    assert any(ready.hard_state is not None for _, ready in write_set.groups)
    node.take(write_set)
    return write_set


def test_nothing_is_promised_before_the_hard_state_is_durable() -> None:
    """That the log is says nothing of a vote."""
    node = StoredNode().open(first=True)
    node.step()
    promised = list[int]()
    node.store.on_synced = promised.append
    refuse_syncs_of_hard_states(node)
    write_set = vote(node)
    node.settle()
    assert promised == []
    node.disk.watch = None
    node.loop.run_until(lambda: promised == [write_set.number])
    assert node.errors == []


def test_the_log_names_the_stream_that_cannot_begin(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = StoredNode().open(first=True)
    refusals, finish = [StoreFull("no room")], node.node.finish_in_log

    def refuse(store: object) -> None:
        """The first time."""
        if refusals:
            raise refusals.pop()
        finish(store)

    monkeypatch.setattr(node.node, "finish_in_log", refuse)
    node.create(2)
    assert "stream 'A > S2' cannot begin here (no room)" in caplog.text
    assert not node.store.delays.now


def test_a_group_does_not_begin_before_its_hard_state_is_durable() -> None:
    node = StoredNode().open(first=True)
    node.step()
    begun: list[str] = []
    refused = refuse_syncs_of_hard_states(node)
    first = bootstrap(node.config, node.number)
    node.store.create(2, first, lambda: begun.append("group 2"))
    node.loop.run_until(lambda: len(refused) > 1)
    assert begun == []
    node.disk.watch = None
    node.loop.run_until(lambda: bool(begun))
    node.settle()
    assert begun == ["group 2"] and node.errors == []


def test_a_vote_whose_sync_failed_outlasts_a_kill_and_a_power_cut() -> None:
    """The next start reads it, but from memory only, and would not vote for another; so it has to
    be on the disk before that start says anything."""
    node = StoredNode().open(first=True)
    node.step()
    refused = refuse_syncs_of_hard_states(node)
    vote(node)
    term = node.raft().term
    node.loop.run_until(lambda: bool(refused))
    node.disk.kill()
    node.loop.drop()
    node.disk.watch = None
    assert hard_state_of(node.open()).term == term
    node.cut(lose="all")
    assert hard_state_of(node.open()).term == term


def hard_state_of(node: StoredNode) -> HardState:
    """What a start has found of the first group."""
    found = node.store.start.groups[1].hard_state
    assert found is not None
    return found
