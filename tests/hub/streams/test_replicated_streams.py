"""A replicated stream: acknowledged by a quorum, the same on every node, alive on the leader's."""

import json

import msgspec
import pytest

from headwater.edge.kernel.kernel import CallbackSink
from tests.hub.streams.stream_cluster import BOOT, ClusterNode, StreamCluster, Wanted


def test_a_publish_is_acknowledged_and_is_on_every_node() -> None:
    cluster = StreamCluster()
    cluster.make()
    leader = cluster.leader()
    for n in range(1, 51):
        assert leader.ask(f"s.{n % 5}", b"payload %d" % n) == {"stream": "S", "seq": n}
    cluster.settle()
    rows = [node.replica_rows(2) for node in cluster.nodes.values()]
    assert rows[0][0] == (1, 50, 50)
    assert rows[0] == rows[1] == rows[2]


def led_cluster() -> tuple[StreamCluster, ClusterNode, int]:
    """A cluster that has stored a message, its leader, and the last entry."""
    cluster = StreamCluster()
    cluster.make()
    leader = cluster.leader()
    leader.ask("s.a", b"first")
    cluster.settle()
    return cluster, leader, leader.streams.status(2).last


def test_what_comes_from_many_sockets_at_once_is_one_entry() -> None:
    cluster, leader, before = led_cluster()
    for n in range(20):
        leader.publish("s.a", b"%d" % n)  # each in a turn of its own
    cluster.wait(lambda: leader.streams.status(2).last > before)
    rows = equal_replicas(cluster)
    assert messages(rows) == [b"first"] + [b"%d" % n for n in range(20)]
    assert leader.streams.status(2).last == before + 1


@pytest.mark.parametrize(("size", "most"), [(10, 9), (9000, 40)])
def test_little_waits_behind_two_entries_and_much_does_not(size: int, most: int) -> None:
    cluster, leader, before = led_cluster()
    acks: list[bytes] = []
    leader.listen("acks.*", acks.append)
    payloads = [b"%d." % n + b"x" * size for n in range(40)]
    for n, payload in enumerate(payloads):  # all in the time of three ways there and back
        leader.loop.call_later(n * 75e-6, leader.publish, "s.a", payload, f"acks.{n}")
    cluster.wait(lambda: len(acks) == 40)
    assert messages(equal_replicas(cluster)) == [b"first", *payloads]
    entries = leader.streams.status(2).last - before
    assert most // 2 < entries <= most


def equal_replicas(cluster: StreamCluster, group: int = 2) -> list[tuple[object, ...]]:
    """What every replica holds, which is the same."""
    cluster.settle(group)
    rows = [node.replica_rows(group) for node in cluster.nodes.values() if node.up]
    for row in rows:
        assert row == rows[0]
    return rows[0]


def messages(rows: list[tuple[object, ...]]) -> list[object]:
    """The payloads among the rows of a replica."""
    return [row[4] for row in rows[1:] if isinstance(row[0], int)]


def test_what_was_acknowledged_outlives_the_leader() -> None:
    cluster = StreamCluster()
    cluster.make()
    first = cluster.leader()
    for n in range(20):
        first.ask("s.a", b"%d" % n)
    term = cluster.nodes[first.number].streams.status(2).term
    first.crash()
    second = cluster.leader(besides=first.number)
    assert second.streams.status(2).term > term
    assert second.ask("s.a", b"after") == {"stream": "S", "seq": 21}
    first.open()
    rows = equal_replicas(cluster)
    assert messages(rows) == [b"%d" % n for n in range(20)] + [b"after"]
    assert "S" not in first.jetstream.accounts["A"].streams or cluster.leader() is first


def test_a_leader_without_a_quorum_acknowledges_nothing() -> None:
    cluster = StreamCluster()
    cluster.make()
    leader = cluster.leader()
    leader.ask("s.a", b"kept")
    others = [number for number in cluster.nodes if number != leader.number]
    cluster.cut = {pair for n in others for pair in ((leader.number, n), (n, leader.number))}
    answers: list[bytes] = []
    leader.listen("_INBOX.none", answers.append)
    leader.publish("s.a", b"never", "_INBOX.none")
    second = cluster.leader(besides=leader.number)
    cluster.wait(lambda: leader.streams.stream(2) is None)
    assert second.ask("s.a", b"other") == {"stream": "S", "seq": 2}
    cluster.cut.clear()
    rows = equal_replicas(cluster)
    assert messages(rows) == [b"kept", b"other"]
    assert [json.loads(each)["error"]["err_code"] for each in answers] == [10008]


def test_no_request_hears_of_a_deletion_that_is_not_committed() -> None:
    cluster = StreamCluster()
    cluster.make()
    leader = cluster.leader()
    leader.ask(
        "$JS.API.CONSUMER.CREATE.S.C",
        b'{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}',
    )
    answers: list[tuple[str, dict[str, object]]] = []
    requests = ("DELETE.S.C", "DELETE.S.C", "INFO.S.C", "NAMES.S")
    for number, request in enumerate(requests):
        inbox = f"_INBOX.gone.{number}"
        leader.listen(inbox, lambda body, of=request: answers.append((of, json.loads(body))))
        leader.publish(f"$JS.API.CONSUMER.{request}", b"", inbox)
    cluster.wait(lambda: len(answers) == 4)
    (first, done), *others = answers
    assert (first, done.get("success")) == ("DELETE.S.C", True), answers
    found = dict(others)
    assert found["NAMES.S"]["total"] == 0
    for request in ("DELETE.S.C", "INFO.S.C"):
        error = found[request]["error"]
        assert isinstance(error, dict) and error["err_code"] == 10014


def test_consumers_go_on_where_they_were() -> None:
    cluster = StreamCluster()
    cluster.make(retention="workqueue")
    leader = cluster.leader()
    made = leader.ask(
        "$JS.API.CONSUMER.CREATE.S.C",
        b'{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}',
    )
    assert made["name"] == "C"
    for n in range(10):
        leader.ask("s.a", b"%d" % n)
    got: list[tuple[bytes, bytes]] = []
    sink = CallbackSink(b"_INBOX.pull", lambda s, r, h, payload, o: got.append((r, payload)))
    leader.account.insert(sink)
    leader.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":6}', "_INBOX.pull")
    cluster.wait(lambda: len(got) == 6)
    confirmed: list[bytes] = []
    leader.listen("_INBOX.acked", confirmed.append)
    for reply, _ in got[:4]:
        leader.publish(reply.decode(), b"+ACK", "_INBOX.acked")
    cluster.wait(lambda: len(confirmed) == 4)
    leader.crash()
    second = cluster.leader(besides=leader.number)
    info = second.ask("$JS.API.CONSUMER.INFO.S.C")
    assert info["ack_floor"]["stream_seq"] == 4
    assert info["num_ack_pending"] == 2 and info["num_pending"] == 4
    assert second.ask("$JS.API.STREAM.INFO.S")["state"]["messages"] == 6
    again: list[tuple[bytes, bytes]] = []
    second.account.insert(
        CallbackSink(b"_INBOX.pull", lambda s, r, h, payload, o: again.append((r, payload)))
    )
    second.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":4}', "_INBOX.pull")
    cluster.wait(lambda: len(again) == 4)
    assert [payload for _, payload in again] == [b"6", b"7", b"8", b"9"]
    leader.open()
    equal_replicas(cluster)


def test_limits_purges_deletes_and_rollups_are_the_same_everywhere() -> None:
    cluster = StreamCluster()
    cluster.make(
        max_msgs=30,
        max_msgs_per_subject=10,
        allow_rollup_hdrs=True,
        subjects=["s.>"],
    )
    leader = cluster.leader()
    for n in range(60):
        leader.publish(f"s.{n % 4}", b"x" * n)
    leader.ask("s.0", b"last")
    assert leader.ask("$JS.API.STREAM.INFO.S")["state"]["messages"] <= 30
    assert leader.ask("$JS.API.STREAM.MSG.DELETE.S", b'{"seq":50}')["success"] is True
    purged = leader.ask("$JS.API.STREAM.PURGE.S", b'{"filter":"s.1"}')
    assert purged["purged"] > 0
    roll = b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n"
    leader.publish("s.2", b"all of it", "", roll)
    leader.ask("s.3", b"end")
    rows = equal_replicas(cluster)
    subjects = [row[2] for row in rows[1:] if len(row) == 5]
    assert subjects.count(b"s.2") == 1 and b"s.1" not in subjects
    assert 50 not in [row[0] for row in rows[1:]]


def test_decisions_see_what_is_on_its_way() -> None:
    cluster = StreamCluster()
    cluster.make(max_msgs=5, discard="new")
    leader = cluster.leader()
    answers: list[bytes] = []
    leader.listen("_INBOX.all", answers.append)
    msg_id = b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n"
    expected = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 1\r\n\r\n"
    leader.publish("s.a", b"1", "_INBOX.all", msg_id)
    leader.publish("s.a", b"again", "_INBOX.all", msg_id)
    leader.publish("s.a", b"2", "_INBOX.all", expected)
    leader.publish("s.a", b"stale", "_INBOX.all", expected)
    for n in range(3, 8):
        leader.publish("s.b", b"%d" % n, "_INBOX.all")
    cluster.wait(lambda: len(answers) == 9)
    found = [json.loads(answer) for answer in answers]
    assert sorted(row["seq"] for row in found if "error" not in row) == [1, 1, 2, 3, 4, 5]
    assert sum(row.get("duplicate", False) for row in found) == 1
    assert sorted(row["error"]["err_code"] for row in found if "error" in row) == [
        10071,
        10077,
        10077,
    ]
    assert messages(equal_replicas(cluster)) == [b"1", b"2", b"3", b"4", b"5"]


def test_all_nodes_at_once_without_power() -> None:
    cluster = StreamCluster()
    cluster.make()
    leader = cluster.leader()
    for n in range(30):
        leader.ask("s.a", b"%d" % n)
    for node in cluster.nodes.values():
        node.crash("all")
    for node in cluster.nodes.values():
        node.open()
    assert cluster.leader().ask("s.a", b"after") == {"stream": "S", "seq": 31}
    assert messages(equal_replicas(cluster))[:30] == [b"%d" % n for n in range(30)]


def test_a_follower_far_behind_gets_a_snapshot_with_consumers() -> None:
    cluster = StreamCluster()
    cluster.make()
    leader = cluster.leader()
    leader.ask(
        "$JS.API.CONSUMER.CREATE.S.C",
        b'{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}',
    )
    behind = next(node for node in cluster.nodes.values() if node is not leader)
    behind.crash()
    raft = leader.streams.groups[2].raft
    last = raft.log.last
    for n in range(200):
        leader.publish("s.a", b"%d" % n * 100)
    for _ in range(3):
        leader.ask("s.a", b"end")
    leader.store.trim(raft, 100, 100)
    assert raft.log.base_index > last
    behind.open()
    rows = equal_replicas(cluster)
    assert rows[0] == (1, 203, 203) and any(row[0] == b"consumer/C" for row in rows)


def test_a_wiped_node_comes_back_as_a_new_member() -> None:
    cluster = StreamCluster()
    cluster.make()
    leader = cluster.leader()
    for n in range(10):
        leader.ask("s.a", b"%d" % n)
    other = next(node for node in cluster.nodes.values() if node is not leader)
    other.crash()
    other.wipe()
    other.open()
    for n in range(10):
        leader.ask("s.a", b"%d" % n)
    assert equal_replicas(cluster)[0] == (1, 20, 20)


def test_a_wiped_node_is_not_the_member_that_acknowledged() -> None:
    cluster = StreamCluster()
    cluster.make()
    leader = cluster.leader()
    leader.ask("s.a", b"1")
    cluster.settle()
    witness, behind = (node for node in cluster.nodes.values() if node is not leader)
    cluster.cut = {(leader.number, behind.number), (witness.number, behind.number)}
    leader.ask("s.a", b"2")
    cluster.wait(lambda: witness.streams.status(2).applied == leader.streams.status(2).last)
    witness.crash()
    witness.wipe()
    leader.crash()
    cluster.cut.clear()
    witness.open()
    cluster.sleep(5)
    assert witness.streams.stream(2) is None and behind.streams.stream(2) is None
    leader.open()
    assert cluster.leader().ask("s.a", b"3") == {"stream": "S", "seq": 3}
    assert messages(equal_replicas(cluster)) == [b"1", b"2", b"3"]


def test_leadership_is_handed_over_without_a_lost_message() -> None:
    cluster = StreamCluster()
    cluster.make()
    leader = cluster.leader()
    for n in range(10):
        leader.ask("s.a", b"%d" % n)
    other = next(node for node in cluster.nodes.values() if node is not leader)
    leader.streams.transfer(2, other.number)
    cluster.wait(lambda: other.streams.stream(2) is not None)
    assert leader.streams.stream(2) is None
    assert other.ask("s.a", b"on") == {"stream": "S", "seq": 11}
    assert equal_replicas(cluster)[0] == (1, 11, 11)


def test_a_stream_is_deleted_everywhere() -> None:
    cluster = StreamCluster()
    wanted = cluster.make()
    cluster.leader().ask("s.a", b"1")
    cluster.wanted.clear()
    for node in cluster.nodes.values():
        node.streams.delete(wanted)
    cluster.sleep(1)
    for node in cluster.nodes.values():
        assert node.streams.stream(2) is None and node.jetstream.store().stores() == []
        node.crash("none")
        node.open()
        assert node.jetstream.store().stores() == []


def test_a_replicated_memory_stream_is_as_safe() -> None:
    cluster = StreamCluster()
    cluster.make(storage="memory")
    leader = cluster.leader()
    for n in range(20):
        leader.ask("s.a", b"%d" % n)
    assert leader.jetstream.usage["memory"].used > 0
    for node in cluster.nodes.values():
        node.crash("all")
    for node in cluster.nodes.values():
        node.open()
    assert cluster.leader().ask("s.a", b"after") == {"stream": "S", "seq": 21}
    assert equal_replicas(cluster)[0] == (1, 21, 21)


def test_a_configuration_changes_at_one_place_of_the_order() -> None:
    cluster = StreamCluster()
    wanted = cluster.make()
    leader = cluster.leader()
    for n in range(20):
        leader.ask("s.a", b"%d" % n)
    smaller = msgspec.structs.replace(wanted.stream_config, max_msgs=5)
    changed = msgspec.structs.replace(wanted, stream_config=smaller)
    cluster.wanted[0] = changed
    leader.publish("s.a", b"before")
    for node in cluster.nodes.values():
        node.streams.change(changed)
    cluster.wait(lambda: leader.streams.stream(2).config.max_msgs == 5)
    leader.ask("s.a", b"behind")
    assert equal_replicas(cluster)[0] == (18, 22, 5)
    leader.crash()
    assert cluster.leader(besides=leader.number).streams.stream(2).config.max_msgs == 5


def test_a_new_group_has_its_preferred_leader_at_once() -> None:
    cluster = StreamCluster()
    cluster.make()
    began = cluster.loop.time()
    assert cluster.leader().number == 1
    assert cluster.loop.time() - began < 0.2


def test_a_stream_gets_replicas_and_loses_them_again() -> None:
    cluster = StreamCluster()
    first = cluster.nodes[1]
    first.ask("$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s.>"]}')
    first.ask(
        "$JS.API.CONSUMER.CREATE.S.C",
        b'{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}',
    )
    for n in range(20):
        first.ask("s.a", b"%d" % n)
    got: list[bytes] = []
    first.account.insert(CallbackSink(b"_INBOX.pull", lambda s, r, h, payload, o: got.append(r)))
    first.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":5}', "_INBOX.pull")
    cluster.wait(lambda: len(got) == 5)
    alone = first.jetstream.accounts["A"].streams["S"]
    config = msgspec.structs.replace(alone.config, num_replicas=3)
    wanted = Wanted(
        "S", config, 7, [1, 2, 3], [BOOT] * 3, incarnation=alone.incarnation, founders={1: BOOT}
    )
    cluster.wanted.append(wanted)
    for node in cluster.nodes.values():
        node.streams.start(wanted)
    assert cluster.leader(7) is first
    assert first.ask("s.a", b"on") == {"stream": "S", "seq": 21}
    raft = first.streams.groups[7].raft
    cluster.wait(lambda: len(raft.log.config.voters) == 3)
    assert equal_replicas(cluster, 7)[0] == (1, 21, 21)
    first.crash()
    second = cluster.leader(7)
    assert second.ask("$JS.API.CONSUMER.INFO.S.C")["num_ack_pending"] == 5
    first.open()
    fewer = msgspec.structs.replace(wanted, peers=[2], boots=[BOOT])
    fewer.stream_config = msgspec.structs.replace(config, num_replicas=1)
    cluster.wanted[:] = [fewer]
    for node in cluster.nodes.values():
        node.streams.change(fewer)
    last = cluster.nodes[2]
    cluster.wait(lambda: first.streams.has_left(7) and cluster.nodes[3].streams.has_left(7))
    for number in (1, 3):
        cluster.nodes[number].streams.delete(fewer)
        assert cluster.nodes[number].jetstream.store().stores() == []
    cluster.wait(lambda: last.streams.stream(7) is not None)
    assert last.ask("s.a", b"alone") == {"stream": "S", "seq": 22}
    cluster.wanted[:] = [wanted]
    for node in cluster.nodes.values():
        node.streams.change(wanted)
    cluster.wait(lambda: len(last.streams.groups[7].raft.log.config.voters) == 3, 30)
    assert equal_replicas(cluster, 7)[0] == (1, 22, 22)


def test_a_leader_without_room_hands_over() -> None:
    cluster = StreamCluster()
    cluster.make()
    leader = cluster.leader()
    leader.ask("s.a", b"1")
    leader.disk.capacity = 1
    for _ in range(100):
        if leader.streams.stream(2) is None:
            break
        leader.publish("s.a", b"x" * 4096)
        cluster.sleep(0.1)
    second = cluster.leader()
    assert second is not leader
    assert "seq" in second.ask("s.a", b"2")
    leader.disk.capacity = 0
    cluster.sleep(3)
    equal_replicas(cluster)


def test_publishers_of_a_leader_that_is_replaced_hear_that_nobody_knows() -> None:
    cluster = StreamCluster()
    cluster.make()
    old = cluster.leader()
    assert old.ask("s.a", b"1")["seq"] == 1
    others = [number for number in cluster.nodes if number != old.number]
    cluster.cut |= {pair for other in others for pair in ((old.number, other), (other, old.number))}
    heard: list[dict[str, object]] = []
    for number in range(3):
        old.listen(f"ack.{number}", lambda data: heard.append(json.loads(data)))
        old.publish("s.a", b"2", reply=f"ack.{number}")
    new = cluster.leader(besides=old.number)
    assert new.ask("s.a", b"3")["seq"] == 2
    cluster.wait(lambda: len(heard) == 3)
    assert [each["error"] for each in heard] == 3 * [
        {"code": 503, "err_code": 10008, "description": "JetStream system temporarily unavailable"}
    ]
    cluster.cut.clear()
    cluster.settle()
    assert equal_replicas(cluster)[0] == (1, 2, 2)
    assert len(heard) == 3


READS = {
    "last-of-a-subject": ("DIRECT.GET.S.s.a", b""),
    "with-a-body": ("DIRECT.GET.S", b'{"last_by_subj": "s.a"}'),
    "block": ("BLOCK.GET.S", b'{"seq": 1}'),
}


@pytest.mark.parametrize("read", list(READS))
def test_reads_of_a_leader_that_is_replaced_are_not_answered_by_it(read: str) -> None:
    """Whether it was cut off, or its process stood still: nobody gets what is no more the last."""
    subject, body = READS[read]
    cluster = StreamCluster()
    cluster.make(allow_direct=True)
    old = cluster.leader()
    old.ask("s.a", b"1")
    heard: list[bytes] = []
    old.listen("answer", heard.append)
    # A leader that is heard answers at once, also after a rest.
    cluster.sleep(5)
    old.publish(f"$JS.API.{subject}", body, reply="answer")
    cluster.wait(lambda: any(b"1" in data for data in heard), 1)
    heard.clear()
    others = [number for number in cluster.nodes if number != old.number]
    cluster.cut |= {pair for other in others for pair in ((old.number, other), (other, old.number))}
    old.stop_process()
    new = cluster.leader(besides=old.number)
    new.ask("s.a", b"2")

    def first() -> None:
        old.publish(f"$JS.API.{subject}", body, reply="answer")

    old.go_on(first)
    cluster.wait(lambda: bool(heard), 5)
    assert heard == [b""]
