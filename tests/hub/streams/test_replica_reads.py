"""Direct gets of replicas: what they show, how they ask, and when they are there to be asked."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headwater.edge.kernel.kernel import CallbackSink
from headwater.hub.streams import replica_reads
from tests.hub.streams.read_bugs import READ_BUGS
from tests.hub.streams.stream_bugs import find
from tests.hub.streams.stream_cluster import IDENTITY, ClusterNode, StreamCluster
from tests.hub.streams.stream_story import StreamStory
from tests.slow import one_in

GROUP = 2
SEEDS_FOR_A_BUG = 60


def sequence_of(block: bytes) -> int:
    """The sequence of a message that a direct get gave; 0 for a status."""
    words = block.split()
    return int(words[words.index(b"Nats-Sequence:") + 1]) if b"Nats-Sequence:" in words else 0


def get(node: ClusterNode, body: bytes = b"", subject: str = ".s.a") -> list[bytes]:
    """Ask a node; the header blocks of the answers come later."""
    found: list[bytes] = []
    inbox = f"_INBOX.{node.number}.{node.cluster.number()}"
    node.account.insert(CallbackSink(inbox.encode(), lambda s, r, block, p, o: found.append(block)))
    node.publish(f"$JS.API.DIRECT.GET.S{subject}", body, inbox)
    return found


def serves(node: ClusterNode) -> bool:
    """Whether a node is there to be asked."""
    return any(sink.queue for sink in node.account.sinks(b"$JS.API.DIRECT.GET.S.s.a"))


def served(cluster: StreamCluster, size: int) -> None:
    """Wait until all replicas are there to be asked."""
    nodes = list(cluster.nodes.values())
    cluster.wait(lambda: sum(serves(node) for node in nodes if node.up) == size)


def made(size: int = 3, **fields: Any) -> StreamCluster:
    """A cluster with a stream, a message in it, and all replicas there to be asked."""
    cluster = StreamCluster(size, leases=True)
    cluster.make(allow_direct=True, num_replicas=size, **fields)
    assert cluster.leader().ask("s.a", b"1")["seq"] == 1
    served(cluster, size)
    return cluster


def followers(cluster: StreamCluster) -> list[ClusterNode]:
    leader = cluster.leader()
    return [node for node in cluster.nodes.values() if node is not leader]


def shut_in(cluster: StreamCluster, *nodes: ClusterNode) -> None:
    """Let these and the others hear nothing of each other."""
    inside = {node.number for node in nodes}
    numbers = cluster.nodes
    cluster.cut |= {(a, b) for a in numbers for b in numbers if len(inside & {a, b}) == 1}


def test_every_replica_shows_what_was_acknowledged() -> None:
    cluster = made()
    for payload in range(2, 30):
        sequence = cluster.leader().ask("s.a", b"%d" % payload)["seq"]
        asked = [get(node) for node in cluster.nodes.values()]
        cluster.wait(lambda asked=asked: all(asked), 0.5)
        assert [sequence_of(found[0]) for found in asked] == [sequence] * 3


def test_every_kind_of_direct_get_is_answered_by_a_follower() -> None:
    cluster = made()
    cluster.leader().ask("s.b", b"x")
    node = followers(cluster)[0]
    kinds = [
        (b'{"seq":2}', [2]),
        (b'{"last_by_subj":"s.a"}', [1]),
        (b'{"next_by_subj":"s.>","seq":2}', [2]),
        (b'{"batch":5,"seq":1}', [1, 2, 0]),
        (b'{"multi_last":["s.>"]}', [1, 2, 0]),
        (b'{"seq":9}', [0]),
    ]
    for body, expected in kinds:
        found = get(node, body, "")
        cluster.wait(lambda f=found, e=expected: len(f) >= len(e), 0.5)
        assert [sequence_of(block) for block in found] == expected, body


def test_a_follower_that_is_shut_in_with_an_old_leader_shows_nothing_old() -> None:
    """While the old leader has its lease nobody else can lead; from then on it says that it does
    not know, until it gives up."""
    cluster = made(5)
    old = cluster.leader()
    follower = followers(cluster)[0]
    shut_in(cluster, old, follower)
    answers: list[tuple[float, list[bytes]]] = []
    end = cluster.loop.time() + 4.5
    newest = [(0.0, 1)]

    def asks() -> None:
        if cluster.loop.time() < end:
            answers.append((cluster.loop.time(), get(follower)))
            cluster.loop.call_later(0.01, asks)

    asks()
    new = cluster.leader(besides=old.number)
    newest.append((cluster.loop.time(), new.ask("s.a", b"2")["seq"]))
    acked = cluster.loop.time()
    cluster.sleep(end - cluster.loop.time() + 3.5)
    late = [found for began, found in answers if began >= acked]
    assert late
    for found in late:
        assert not found or sequence_of(found[0]) in (0, 2), found
    assert any(sequence_of(found[0]) == 1 for began, found in answers if found and began < acked)
    cluster.cut.clear()
    served(cluster, 5)
    found = get(follower)
    cluster.wait(lambda: bool(found), 3)
    assert sequence_of(found[0]) == 2


def test_a_leader_that_was_stopped_answers_no_question_by_the_lease_it_had() -> None:
    """The questions that it finds came before; nobody has told it the time since."""
    cluster = made(5)
    old = cluster.leader()
    follower, *others = followers(cluster)
    old.ask("s.b", b"")
    cluster.sleep(0.2)
    assert old.streams.stream(GROUP).reads.answers_now(), "it has a lease"
    shut_in(cluster, old, follower)
    old.stop_process()
    new = cluster.leader(besides=old.number)
    assert new.ask("s.a", b"2")["seq"] == 3
    raft = follower.streams.groups[GROUP].raft
    # It has missed the election, and nobody else tells it.
    raft.become_follower(raft.term, old.number)
    asked = delay(cluster, b"index", old, 3600.0)
    found = get(follower)
    cluster.wait(lambda: bool(asked), 0.1)
    # Sockets are read before timers run.
    old.go_on(lambda: old.hear(follower.number, b"index", IDENTITY, asked[0]))
    cluster.sleep(0.2)
    assert sequence_of(found[0] if found else b"") == 0


def wake(node: ClusterNode) -> None:
    """Have a group do something, so that its leader gets a lease."""
    node.publish("s.z", b"")


def delay(cluster: StreamCluster, kind: bytes, to: ClusterNode, seconds: float) -> list[bytes]:
    """Have frames of a kind take longer to a node; they are gathered."""
    true, seen = cluster.send, list[bytes]()

    def send(sender: int, number: int, frame: tuple[bytes, int, bytes]) -> bool:
        if frame[0] != kind or number != to.number:
            return true(sender, number, frame)
        seen.append(frame[2])
        cluster.loop.call_later(seconds, lambda: true(sender, number, frame))
        return True

    cluster.send = send  # type: ignore[method-assign]
    return seen


def test_who_asks_while_a_question_is_on_its_way_waits_for_the_next() -> None:
    cluster = made()
    leader, node = cluster.leader(), followers(cluster)[0]
    wake(leader)
    cluster.sleep(0.2)
    seen = delay(cluster, b"indexed", node, 0.05)
    first = get(node)
    cluster.wait(lambda: bool(seen), 0.1)
    # The node has not heard of what is acknowledged now.
    delay(cluster, b"raft", node, 0.1)
    sequence = leader.ask("s.a", b"2")["seq"]
    late = get(node)
    cluster.wait(lambda: bool(first and late), 1)
    assert sequence_of(first[0]) in (1, sequence)
    assert sequence_of(late[0]) == sequence


def test_an_answer_that_was_given_up_is_no_answer_to_another_question() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_reads, "HOLD_NS", 30_000_000)
        given_up_and_asked_again()


def given_up_and_asked_again() -> None:
    """A question is given up, and its answer comes when the next one is on its way."""
    cluster = made()
    leader, node = cluster.leader(), followers(cluster)[0]
    wake(leader)
    cluster.sleep(0.2)
    seen = delay(cluster, b"indexed", node, 0.06)
    first = get(node)
    cluster.wait(lambda: bool(seen), 0.1)
    delay(cluster, b"raft", node, 0.1)
    sequence = leader.ask("s.a", b"2")["seq"]
    cluster.sleep(0.035)
    group = node.streams.groups[GROUP]
    group.reads.look_at(group.raft, group.replica.applied)
    assert not group.reads.busy, "it is refused"
    second = get(node)
    cluster.wait(lambda: bool(first and second), 1)
    assert sequence_of(second[0]) in (0, sequence)


def test_a_leader_whose_disk_is_slow_shows_no_less_than_the_others() -> None:
    """What the others have on disk is committed, before the leader has it."""
    cluster = made()
    leader, node = cluster.leader(), followers(cluster)[0]
    wake(leader)
    cluster.sleep(0.2)
    synced = leader.store.on_synced
    leader.store.on_synced = lambda number: cluster.loop.call_later(0.1, synced, number)
    leader.publish("s.a", b"2")
    shown = 1
    while shown == 1:
        found = get(node)
        cluster.wait(lambda found=found: bool(found), 1)
        shown = sequence_of(found[0])
    found = get(leader)
    cluster.wait(lambda: bool(found), 1)
    assert sequence_of(found[0]) == shown


def test_gets_that_come_together_are_one_question() -> None:
    cluster = made()
    wake(cluster.leader())
    cluster.sleep(0.2)
    node = followers(cluster)[0]
    seen = delay(cluster, b"indexed", node, 0.0)
    asked = [get(node) for _ in range(50)]
    cluster.wait(lambda: all(asked), 1)
    assert len(seen) == 1


def test_gets_wait_for_the_next_leader() -> None:
    cluster = made()
    old = cluster.leader()
    old.crash("all")
    asked = [get(node) for node in cluster.nodes.values() if node is not old]
    cluster.wait(lambda: all(asked), 3)
    assert [sequence_of(found[0]) for found in asked] == [1, 1]


def test_without_a_majority_gets_are_refused_and_the_replica_leaves() -> None:
    cluster = made()
    leader = cluster.leader()
    node, other = followers(cluster)
    leader.crash("all")
    other.crash("all")
    found = get(node)
    began = cluster.loop.time()
    cluster.wait(lambda: bool(found), 5)
    assert found[0].startswith(b"NATS/1.0 503")
    assert 2.9 < cluster.loop.time() - began < 3.5
    cluster.wait(lambda: not serves(node), 1)
    leader.open()
    other.open()
    served(cluster, 3)


def test_a_follower_that_does_not_keep_up_leaves_until_it_does() -> None:
    cluster = made()
    node = followers(cluster)[0]
    group = node.streams.groups[GROUP]
    true, waiting = group.ready, list[Any]()

    def ready(raft: Any, what: Any) -> None:
        waiting.extend(what.committed)
        what.committed = []
        true(raft, what)

    group.ready = ready  # type: ignore[method-assign]
    cluster.leader().ask("s.a", b"2")
    found = get(node)
    cluster.wait(lambda: not serves(node), 2)
    assert not found
    group.ready = true  # type: ignore[method-assign]
    group.replica.apply(waiting)
    cluster.wait(lambda: bool(found), 1)
    assert sequence_of(found[0]) == 2
    served(cluster, 3)


def test_direct_gets_begin_and_end_with_the_configuration() -> None:
    cluster = made()
    wanted = cluster.wanted[0]
    for allowed in (False, True):
        config = msgspec.structs.replace(wanted.stream_config, allow_direct=allowed)
        changed = msgspec.structs.replace(wanted, stream_config=config)
        for number in (1, 2, 3):
            cluster.nodes[number].streams.change(changed)

        def all_follow(allowed: bool = allowed) -> bool:
            return all(serves(node) is allowed for node in cluster.nodes.values())

        cluster.wait(all_follow, 3)


FOUND_BY: dict[str, Callable[[], None]] = {
    "a_question_on_its_way_is_for_those_too_who_ask_later": (
        test_who_asks_while_a_question_is_on_its_way_waits_for_the_next
    ),
    "an_old_answer_is_taken_for_the_new_one": (
        test_an_answer_that_was_given_up_is_no_answer_to_another_question
    ),
    "a_leader_tells_its_commit_without_a_lease": (
        test_a_leader_that_was_stopped_answers_no_question_by_the_lease_it_had
    ),
    "whoever_is_asked_tells_its_commit": (
        test_a_follower_that_is_shut_in_with_an_old_leader_shows_nothing_old
    ),
    "a_leader_shows_less_than_what_is_committed": (
        test_a_leader_whose_disk_is_slow_shows_no_less_than_the_others
    ),
    "a_leader_counts_its_lease_from_the_last_tick": (
        test_a_leader_that_was_stopped_answers_no_question_by_the_lease_it_had
    ),
}
FOUND_BY_STORIES = sorted(READ_BUGS.keys() - FOUND_BY.keys())


@pytest.mark.parametrize("name", one_in(3, FOUND_BY_STORIES))
def test_a_planted_bug_is_found_by_stories(name: str) -> None:
    find(READ_BUGS[name], lambda seed: StreamStory(seed).run(), SEEDS_FOR_A_BUG)


@pytest.mark.parametrize("name", FOUND_BY)
def test_a_planted_bug_is_found(name: str) -> None:
    find(READ_BUGS[name], lambda seed: FOUND_BY[name](), 1)
