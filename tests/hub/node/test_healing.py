"""Replicas with damaged messages, and replicas that differ, are made again from the others."""

import asyncio
import json
from pathlib import Path
from typing import Any

import nats
import pytest

from bench.cluster.nodes import SERVERS, ClusterNodes, ask, insist, leader_of, whole
from headwater.hub.node.healing import Healing
from headwater.hub.node.service import ClusterService
from headwater.hub.streams.replica_digest import differing, odd_ones
from tests.hub.cluster.test_replicas import R, current, index_of
from tests.hub.lab import Lab, api, until
from tests.slow import one_in

COUNT = 50


def healing_of(lab: Lab, index: int) -> Healing:
    """That of one node."""
    node = lab.nodes[index]
    assert node is not None
    found = next(s for s in node.services if isinstance(s, ClusterService)).healing
    assert found is not None
    return found


def replica_of(lab: Lab, index: int) -> Any:
    """The store of a node's replica of the one stream."""
    (group,) = healing_of(lab, index).groups.groups.values()
    return group.replica.store


async def filled(lab: Lab) -> tuple[Any, int]:
    """A stream with messages, all of which every replica has; a client, and who leads."""
    await lab.formed()
    client = await lab.connect(0)
    leader = index_of(await api(client, "STREAM.CREATE.R", **R))
    for number in range(COUNT):
        await client.jetstream().publish("r.a", b"%d" % number)
    await until(lambda: current(lab, "R", 3))
    await until(lambda: all(replica_of(lab, i).messages == COUNT for i in range(3)))
    return client, leader


@pytest.mark.parametrize("odd", ["lacks", "has more"])
async def test_a_follower_that_differs_is_made_again(lab: Lab, odd: str) -> None:
    client, leader = await filled(lab)
    other = (leader + 1) % 3
    told = await client.subscribe("$JS.EVENT.ADVISORY.STREAM.REPLICA_REMADE.R")
    await client.flush()
    spoil(replica_of(lab, other), odd)
    healing_of(lab, leader)._next_pass = 0.0
    await until(lambda: healing_of(lab, other).remade == 1, 15)
    await until(lambda: current(lab, "R", 3) and replica_of(lab, other) is not None, 15)
    await until(lambda: replica_of(lab, other).messages == COUNT)
    for at in range(1, COUNT + 1):
        wanted, found = (replica_of(lab, index).get(at) for index in (leader, other))
        assert (found.payload, found.timestamp) == (wanted.payload, wanted.timestamp)
    assert json.loads((await told.next_msg(2)).data)["stream"] == "R"
    assert (await client.jetstream().publish("r.a", b"x")).seq == COUNT + 1


def spoil(store: Any, odd: str) -> None:
    """Plant a difference."""
    if odd == "lacks":
        store.purge(None, 8)
    else:
        store.add_message(b"r.a", b"planted", b"", store.last_ts, COUNT + 1)


async def test_a_leader_that_differs_is_made_again(lab: Lab) -> None:
    client, leader = await filled(lab)
    for index in range(3):
        healing_of(lab, index).pass_seconds = 1.0
        healing_of(lab, index)._next_pass = 0.0
    replica_of(lab, leader).purge(None, 8)
    await until(lambda: healing_of(lab, leader).remade == 1, 20)
    await until(lambda: current(lab, "R", 3) and replica_of(lab, leader) is not None, 15)
    await until(lambda: replica_of(lab, leader).messages == COUNT)
    client = await lab.connect((leader + 1) % 3)
    message = await client.jetstream().get_msg("R", 7)
    assert message.data == b"6"
    assert sum(healing_of(lab, index).remade for index in range(3)) == 1


def test_what_differs_is_told_from_what_is_late() -> None:
    before, now = {1: 10, 2: 20, 3: 30}, {1: 10, 3: 30}
    # 2 was removed meanwhile; node 6 had not heard of that, node 7 had.
    assert differing(before, now, {6: before, 7: now}) == {}
    assert differing(before, now, {6: {1: 10, 3: 31}}) == {6: {3}}
    assert differing(before, now, {6: {1: 10}, 7: {**now, 4: 40}}) == {6: {3}, 7: {4}}


def test_a_majority_says_which_is_odd() -> None:
    good, bad = {1: 10}, {1: 11}
    assert odd_ones(5, good, {6: good, 7: bad}, {7: {1}}) == {7}
    assert odd_ones(5, bad, {6: good, 7: good}, {6: {1}, 7: {1}}) == {5}
    assert odd_ones(5, bad, {6: good}, {6: {1}}) == set()


def flip(store: Path, word: bytes) -> int:
    """Change a bit of every copy of a word on a node's disk; returns how many."""
    count = 0
    for path in store.rglob("*"):
        if not path.is_file():
            continue
        data = bytearray(path.read_bytes())
        at = data.find(word)
        while at >= 0:
            data[at] ^= 1
            count += 1
            at = data.find(word, at)
        path.write_bytes(data)
    return count


@pytest.mark.parametrize("whose", one_in(2, ["leader", "follower"]))
async def test_a_flipped_bit_heals(tmp_path: Path, whose: str) -> None:
    """Nothing is lost to a client: neither for a reader, nor for a consumer."""
    with ClusterNodes(SERVERS["headwater"], parent=tmp_path) as nodes:
        nodes.start_all()
        await nodes.ready()
        client = await nodes.client(0)
        made = await insist(client, "STREAM.CREATE.R", name="R", subjects=["r.>"], num_replicas=3)
        assert "error" not in made
        js = client.jetstream()
        words = [b"word-%04d-" % number + b"x" * 100 for number in range(100)]
        for word in words:
            await js.publish("r.a", word)
        leader = await whole(client, "R")
        victim = leader if whose == "leader" else (leader + 1) % 3
        nodes.stop(victim)
        assert flip(nodes.store(victim), b"word-0042-") > 0
        nodes.start(victim)
        await nodes.ready()
        await whole(client, "R")
        wanted = {"placement": {"preferred": f"n{victim}"}}
        await ask(client, "STREAM.LEADER.STEPDOWN.R", **wanted)
        body = {"stream_name": "R", "config": {"durable_name": "w", "ack_policy": "explicit"}}
        assert "error" not in await insist(client, "CONSUMER.DURABLE.CREATE.R.w", **body)
        sub = await js.pull_subscribe_bind("w", "R")
        seen: dict[int, bytes] = {}
        async with asyncio.timeout(40):
            while len(seen) < len(words):
                try:
                    for message in await sub.fetch(20, timeout=2):
                        seen[message.metadata.sequence.stream] = message.data
                        await message.ack()
                except (nats.errors.Error, TimeoutError):
                    await asyncio.sleep(0.05)
        assert [seen[at] for at in sorted(seen)] == words
        assert await leader_of(client, "R") in range(3)
        await whole(client, "R")
        await client.close()
