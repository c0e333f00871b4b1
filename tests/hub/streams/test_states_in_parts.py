"""The state of a group travels in parts while the group goes on."""

import json
from typing import Any

import pytest

from headwater.edge.ports.twins.files import TwinFiles
from headwater.hub.stored import group_store
from headwater.hub.stored.arrival import Arrival
from tests.hub.streams.stream_cluster import ClusterNode, StreamCluster
from tests.hub.streams.test_replicated_streams import equal_replicas

CHANGES = ("write", "sync", "sync names", "rename", "unlink", "create", "truncate", "allocate")
CONSUMER = b'{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}'


def let_go(cluster: StreamCluster) -> None:
    """Leave the others nothing but the state."""
    for node in cluster.nodes.values():
        group = node.streams.groups.get(2) if node.up else None
        if group is not None and group.raft is not None and group.replica.store is not None:
            node.store.trim(group.raft, 100, 100)


def far_behind(part_bytes: int, count: int = 300, **fields: Any) -> tuple[StreamCluster, Any, Any]:
    """A cluster, its leader, and a node that is cut off and needs the state."""
    cluster = StreamCluster(part_bytes=part_bytes)
    cluster.make(**fields)
    leader = cluster.leader()
    leader.ask("$JS.API.CONSUMER.CREATE.S.C", CONSUMER)
    leader.ask("s.a", b"known to all")
    cluster.settle()
    behind = next(node for node in cluster.nodes.values() if node is not leader)
    cluster.cut = {pair for n in cluster.nodes for pair in ((n, behind.number), (behind.number, n))}
    for n in range(count):
        leader.publish(f"s.{n % 7}", b"%d " % n * 50)
    leader.ask("s.a", b"end")
    cluster.sleep(0.5)
    let_go(cluster)
    return cluster, leader, behind


def arrival_of(node: ClusterNode) -> Arrival | None:
    """What has arrived of the group's state."""
    return node.store.transfers.arrivals.get(2)


def some_arrived(cluster: StreamCluster, node: ClusterNode, sequence: int) -> None:
    """Wait until messages up to about `sequence` have arrived."""

    def there() -> bool:
        arrival = arrival_of(node)
        return arrival is not None and arrival.position >= sequence

    cluster.wait(there)


def test_the_group_goes_on_while_its_state_travels() -> None:
    cluster, leader, behind = far_behind(1000, max_msgs=250)
    cluster.cut.clear()
    some_arrived(cluster, behind, 150)
    for sequence in (60, 70, 140, 299):
        leader.publish(
            "$JS.API.STREAM.MSG.DELETE.S", b'{"seq":%d,"no_erase":true}' % sequence, "_INBOX.x"
        )
    for n in range(40):
        leader.publish("s.new", b"new %d" % n)
    leader.publish("$JS.API.CONSUMER.CREATE.S.D", CONSUMER.replace(b'"C"', b'"D"'), "_INBOX.y")
    cluster.sleep(0.01)
    assert arrival_of(behind) is not None, "it is still on its way"
    rows = equal_replicas(cluster)
    assert rows[0][1:] == (342, 250)
    assert {row[0] for row in rows if isinstance(row[0], bytes)} >= {b"consumer/C", b"consumer/D"}
    assert not {60, 70, 140, 299} & {row[0] for row in rows[1:]}


def test_ids_of_messages_that_are_gone_come_with_the_state() -> None:
    """Who sends a message again that was done, and reaches a node that never saw it."""
    cluster, leader, behind = far_behind(1000, retention="workqueue")
    msg_id = b"NATS/1.0\r\nNats-Msg-Id: %s\r\n\r\n"
    answers: list[bytes] = []
    leader.listen("_INBOX.all", answers.append)
    for n in range(3):
        leader.publish("s.once", b"x", "_INBOX.all", msg_id % b"id %d" % n)
    cluster.wait(lambda: len(answers) == 3)
    last = json.loads(answers[-1])["seq"]
    for sequence in (last - 2, last - 1, last):
        leader.ask("$JS.API.STREAM.MSG.DELETE.S", b'{"seq":%d}' % sequence)
    let_go(cluster)
    cluster.cut.clear()
    equal_replicas(cluster)
    leader.streams.transfer(2, behind.number)
    cluster.wait(lambda: behind.streams.stream(2) is not None)
    behind.listen("_INBOX.all", answers.append)
    for n in (0, 1, 2, 3):
        behind.publish("s.once", b"x", "_INBOX.all", msg_id % b"id %d" % n)
    cluster.wait(lambda: len(answers) == 7)
    found = [json.loads(answer) for answer in answers[3:]]
    assert [row.get("duplicate", False) for row in found] == [True, True, True, False]
    assert [row["seq"] for row in found] == [last - 2, last - 1, last, last + 1]


def test_a_state_goes_on_where_it_was_under_another_leader() -> None:
    cluster, leader, behind = far_behind(1000)
    cluster.cut.clear()
    some_arrived(cluster, behind, 150)
    arrival = arrival_of(behind)
    assert arrival is not None
    reached = arrival.position
    leader.crash()
    offsets: list[int] = []
    keep = arrival.keep

    def watched(m: Any) -> bool:
        if m.part:
            offsets.append(m.offset)
        return keep(m)

    arrival.keep = watched  # type: ignore[method-assign]
    let_go(cluster)
    assert cluster.leader(besides=leader.number) is not behind
    leader.open()
    assert equal_replicas(cluster)[0] == (1, 302, 302)
    assert offsets and min(offsets) >= reached, "nothing is sent twice"


def test_parts_that_are_lost_or_come_twice_do_no_harm() -> None:
    cluster, leader, behind = far_behind(1000)
    cluster.cut.clear()
    send, count = cluster.send, [0]

    def unreliable(sender: int, to: int, frame: tuple[bytes, int, bytes]) -> bool:
        count[0] += 1
        great = to == behind.number and len(frame[2]) > 900
        if great and count[0] % 7 == 0:
            send(sender, to, frame)
        return great and count[0] % 5 == 0 or send(sender, to, frame)

    cluster.send = unreliable  # type: ignore[method-assign]
    assert equal_replicas(cluster)[0] == (1, 302, 302)


def power_cut_at(change: int, lose: str) -> tuple[StreamCluster, ClusterNode, int]:
    """A state arrives, and the node's power goes at one of its changes of the disk (0: at none).
    Returns how many there were, too."""
    cluster, _, behind = far_behind(2000, 120)
    seen: list[TwinFiles | None] = []

    def watch(what: str, path: str) -> None:
        store = behind.store.replicas[2].store
        if what in CHANGES and (store is None or store.last_seq < 122):
            seen.append(behind.disk.copy() if len(seen) + 1 == change else None)

    behind.disk.watch = watch
    cluster.cut.clear()
    cluster.wait(lambda: change > 0 and len(seen) >= change or is_level(cluster, behind), 30)
    behind.disk.watch = None
    if change:
        found = seen[change - 1]
        assert found is not None
        behind.disk.power_cut(behind.chance, "nothing")
        behind.disk = found
        behind.crash(lose)
    return cluster, behind, len(seen)


def is_level(cluster: StreamCluster, behind: ClusterNode) -> bool:
    """Whether the node has everything."""
    store = behind.store.replicas[2].store
    return store is not None and store.last_seq == 122


@pytest.mark.parametrize("lose", ["some", "everything", "nothing"])
def test_the_power_may_go_at_any_step(lose: str) -> None:
    """A start finds the state of before with its log, or the new one, and nothing between."""
    changes = power_cut_at(0, lose)[2]
    assert changes >= 8
    for change in range(1, changes + 1):
        cluster, behind, _ = power_cut_at(change, lose)
        behind.open()
        assert behind.store.start.problems == []
        store = behind.store.replicas[2].store
        assert store is not None and (store.last_seq, store.messages) in ((1, 1), (122, 122))
        assert equal_replicas(cluster)[0] == (1, 122, 122)


def test_many_groups_share_the_memory_for_one_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_store, "NODE_BYTES", 60_000)
    cluster = StreamCluster()
    groups = range(2, 10)
    for group in groups:
        cluster.make(f"S{group}", group)
    leaders = {group: cluster.leader(group) for group in groups}
    away = cluster.nodes[3]
    away.crash()
    cluster.sleep(2)
    leaders = {group: cluster.leader(group) for group in groups}
    for n in range(40):
        for group, leader in leaders.items():
            leader.publish(f"s{group}.a", b"%d " % n * 300)
        cluster.sleep(0.05)
    for group, leader in leaders.items():
        leader.ask(f"s{group}.a", b"end")
    cluster.sleep(0.2)
    for node in cluster.nodes.values():
        if node.up:
            held = [node.streams.groups[group].raft.log.bytes for group in groups]
            assert sum(held) < 90_000, held
    away.open()
    for group in groups:
        assert equal_replicas(cluster, group)[0] == (1, 41, 41)
