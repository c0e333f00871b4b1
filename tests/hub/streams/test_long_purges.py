"""Purges of large replicated streams: the same on every node, and in slices on each of them."""

import json
from typing import Any

import pytest

from headwater.edge.jetstream.api.long_work import REMOVED, SLICES_ON_THE_WAY
from tests.hub.streams import stream_cluster
from tests.hub.streams.stream_cluster import ClusterNode, StreamCluster

MESSAGES = 5 * REMOVED
SUBJECTS = 10
LAST = (1 << 63) - 1
"""Of all sequences."""
AT_ONCE = SLICES_ON_THE_WAY * REMOVED
"""A replica that was behind may apply all that was on the way in one turn of its loop."""


@pytest.fixture(autouse=True)
def usual_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of the size that an edge has: a slice fits."""
    monkeypatch.setattr(stream_cluster, "SEGMENT_BYTES", 8 << 20)


def filled() -> StreamCluster:
    cluster = StreamCluster()
    cluster.make(subjects=["s.>"])
    leader = cluster.leader()

    def publish() -> None:
        for n in range(MESSAGES):
            leader.account.send(b"s.%d" % (n % SUBJECTS), b"%d" % n, b"", b"", own=True)
        leader.kernel.turn()

    leader.loop.call_soon(publish)
    cluster.wait(lambda: all(held(node) == MESSAGES for node in cluster.nodes.values()), 60)
    return cluster


def held(node: ClusterNode) -> int:
    """Messages of a node's replica."""
    store = node.store.replicas[2].store
    return store.messages if store is not None else 0


def purge(cluster: StreamCluster, **request: Any) -> tuple[int, int]:
    """How many messages went, and the most that any replica took out in one turn of the loop."""
    leader = cluster.leader()
    before = {node.number: held(node) for node in cluster.nodes.values()}
    most, answers = 0, []
    sink = leader.listen("_INBOX.purge", answers.append)

    def look() -> bool:
        nonlocal most
        for node in cluster.nodes.values():
            now = held(node)
            most = max(most, before[node.number] - now)
            before[node.number] = now
        return bool(answers)

    leader.publish("$JS.API.STREAM.PURGE.S", json.dumps(request).encode(), "_INBOX.purge")
    cluster.wait(look, 60)
    leader.account.remove(sink)
    answer = json.loads(answers[0])
    assert answer["success"] is True
    left = {node.number: held(node) for node in cluster.nodes.values()}
    cluster.wait(lambda: look() and len({held(node) for node in cluster.nodes.values()}) == 1)
    assert min(left.values()) == MESSAGES - answer["purged"]
    return answer["purged"], most


# A purge, and how many of the messages go.
PURGES: list[tuple[dict[str, Any], int]] = [
    ({"filter": "s.*"}, MESSAGES),
    ({"filter": "s.3"}, MESSAGES // SUBJECTS),
    ({"filter": "s.*", "seq": MESSAGES // 2 + 1}, MESSAGES // 2),
    ({"filter": "s.*", "keep": 7}, MESSAGES - 7),
    ({"filter": "s.3", "keep": 7}, MESSAGES // SUBJECTS - 7),
    ({"keep": 7}, MESSAGES - 7),
    ({"seq": MESSAGES - 6}, MESSAGES - 7),
]


@pytest.mark.parametrize(("request_", "expected"), PURGES)
def test_every_replica_does_a_slice_at_a_time(request_: dict[str, Any], expected: int) -> None:
    cluster = filled()
    purged, most = purge(cluster, **request_)
    assert purged == expected
    assert most <= AT_ONCE
    cluster.settle()
    rows = [node.replica_rows(2) for node in cluster.nodes.values()]
    assert rows[0] == rows[1] == rows[2]


@pytest.mark.parametrize("filter_", ["", ">"])
@pytest.mark.parametrize("first", [1, 4, MESSAGES + 1])
def test_beyond_the_end_the_stream_goes_on_there(first: int, filter_: str) -> None:
    """As with nats-server: whatever there was, the next message has the sequence of the purge."""
    cluster = filled() if first > MESSAGES else StreamCluster()
    if first <= MESSAGES:
        cluster.make(subjects=["s.>"])
    leader = cluster.leader()
    for _ in range(1, first if first <= MESSAGES else 1):
        leader.ask("s.a", b"before", 30)
    goal = first + 7
    request = json.dumps({"seq": goal, "filter": filter_}).encode()
    answer = leader.ask("$JS.API.STREAM.PURGE.S", request)
    assert answer["purged"] == first - 1
    assert [leader.ask("s.a", b"after", 30)["seq"] for _ in range(2)] == [goal, goal + 1]
    cluster.settle()
    rows = [node.replica_rows(2) for node in cluster.nodes.values()]
    assert rows[0] == rows[1] == rows[2]
    assert held(leader) == 2


def test_the_last_sequence_is_given_once() -> None:
    """What comes behind it is refused, also before the replicas have applied it."""
    cluster = StreamCluster()
    cluster.make(subjects=["s.>"])
    leader = cluster.leader()
    leader.ask("$JS.API.STREAM.PURGE.S", json.dumps({"seq": LAST}).encode())
    answers: list[dict[str, Any]] = []
    leader.listen("_INBOX.acks", lambda payload: answers.append(json.loads(payload)))

    def publish() -> None:
        for _ in range(3):
            leader.account.send(b"s.a", b"end", b"_INBOX.acks", b"", own=True)
        leader.kernel.turn()

    leader.loop.call_soon(publish)
    cluster.wait(lambda: len(answers) == 3, 30)
    assert [each["seq"] for each in answers if "error" not in each] == [LAST]
    assert sum("error" in each for each in answers) == 2
    assert leader.ask("$JS.API.STREAM.PURGE.S")["purged"] == 1
    cluster.settle()
    rows = [node.replica_rows(2) for node in cluster.nodes.values()]
    assert rows[0] == rows[1] == rows[2]


def test_it_takes_what_was_there_and_what_follows_sees_it() -> None:
    """What is published meanwhile stays; the requester's next request waits."""
    cluster = filled()
    leader = cluster.leader()
    order: list[dict[str, Any]] = []
    leader.listen("_INBOX.all", lambda payload: order.append(json.loads(payload)))
    leader.publish("s.3", b"before")
    leader.publish("$JS.API.STREAM.PURGE.S", b'{"filter":"s.*"}', "_INBOX.all")
    leader.publish("s.3", b"meanwhile")
    leader.publish("$JS.API.STREAM.INFO.S", b"", "_INBOX.all")
    cluster.wait(lambda: len(order) == 2, 60)
    assert order[0]["purged"] == MESSAGES + 1
    assert order[1]["state"]["messages"] == 1
    cluster.settle()
    rows = [node.replica_rows(2) for node in cluster.nodes.values()]
    assert rows[0] == rows[1] == rows[2]
    assert [row[4] for row in rows[0][1:] if isinstance(row[0], int)] == [b"meanwhile"]


def test_who_leads_no_more_says_so() -> None:
    """A leader that is cut off in the middle answers with an error; the others go on."""
    cluster = filled()
    leader = cluster.leader()
    answers: list[bytes] = []
    leader.listen("_INBOX.purge", answers.append)
    leader.publish("$JS.API.STREAM.PURGE.S", b'{"filter":"s.*"}', "_INBOX.purge")
    cluster.wait(lambda: held(leader) < MESSAGES)
    others = [number for number in cluster.nodes if number != leader.number]
    cluster.cut = {pair for n in others for pair in ((leader.number, n), (n, leader.number))}
    second = cluster.leader(besides=leader.number)
    cluster.wait(lambda: bool(answers), 30)
    assert "error" in json.loads(answers[0])
    cluster.cut = set()
    assert second.ask("s.a", b"after", 30)["stream"] == "S"
    cluster.settle()
    rows = [node.replica_rows(2) for node in cluster.nodes.values()]
    assert rows[0] == rows[1] == rows[2]
