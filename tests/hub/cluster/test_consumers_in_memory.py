"""Consumers with `mem_storage` outlive the leader of their replicated stream."""

import asyncio
import contextlib
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from headwater.edge.jetstream.consumer.consumer_recovery import of_replica
from headwater.edge.jetstream.progress.saver import PAUSE_S
from tests.hub.cluster.test_replicas import R, current, index_of
from tests.hub.lab import Lab, api
from tests.waiting import until

HOUR = 3600 * 10**9
KINDS: dict[str, dict[str, Any]] = {
    "worker": {"durable_name": "worker", "ack_policy": "explicit"},
    "single": {"durable_name": "single", "ack_policy": "explicit", "num_replicas": 1},
    "reader": {"name": "reader", "ack_policy": "none", "inactive_threshold": HOUR},
    "ordered": {
        "name": "ordered",
        "ack_policy": "none",
        "inactive_threshold": HOUR,
        "num_replicas": 1,
    },
    "last": {
        "name": "last",
        "ack_policy": "none",
        "inactive_threshold": HOUR,
        "deliver_policy": "last_per_subject",
        "filter_subject": "r.*",
    },
}


async def consumer(client: Client, name: str) -> None:
    """Make a consumer with its state in memory."""
    body = {"stream_name": "R", "config": {**KINDS[name], "mem_storage": True}}
    answer = await api(client, f"CONSUMER.CREATE.R.{name}", **body)
    assert answer.get("config", {}).get("mem_storage"), answer


async def fetch(client: Client, name: str, count: int, ack: bool = False) -> list[tuple[int, int]]:
    """(stream sequence, consumer sequence) of the next messages; `ack` waits for the answer."""
    found: list[Msg] = await (
        await client.jetstream().pull_subscribe_bind(name, "R")
    ).fetch(count, timeout=5)
    for message in found if ack else ():
        await message.ack_sync()
    places = [message.metadata.sequence for message in found]
    return [(place.stream, place.consumer) for place in places]


async def served(client: Client) -> bool:
    """Whether the stream is answered for; while its node starts nobody may do so."""
    with contextlib.suppress(TimeoutError):
        return "config" in await api(client, "STREAM.INFO.R", timeout=2)
    return False


async def another_leads(lab: Lab, client: Client) -> None:
    """Have the next node lead, and wait until it does."""
    await until(lambda: current(lab, "R", 3))
    target = (index_of(await api(client, "STREAM.INFO.R")) + 1) % 3
    wanted = {"placement": {"preferred": f"n{target}"}}
    assert (await api(client, "STREAM.LEADER.STEPDOWN.R", **wanted))["success"]
    await until(lambda: lab.cluster(target).here("$G", "R") is not None)


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_they_go_on_where_they_were(lab: Lab, storage: str) -> None:
    """At once behind deliveries: what is put off is written when the leader leaves."""
    await lab.formed()
    client = await lab.connect(0)
    assert "error" not in await api(client, "STREAM.CREATE.R", **{**R, "storage": storage})
    for number in range(40):
        await client.jetstream().publish(f"r.{number}", b"x")
    for name in KINDS:
        await consumer(client, name)
    for step in range(4):
        for name in KINDS:
            places = await fetch(client, name, 10, KINDS[name]["ack_policy"] == "explicit")
            expected = range(step * 10 + 1, step * 10 + 11)
            assert places == [(each, each) for each in expected], name
        await another_leads(lab, client)
    names = (await api(client, "CONSUMER.NAMES.R"))["consumers"]
    assert sorted(names) == sorted(KINDS)


async def test_what_they_confirmed_survives_the_end_of_their_leader(lab: Lab) -> None:
    await lab.formed()
    client = await lab.connect(0)
    leader = index_of(await api(client, "STREAM.CREATE.R", **R))
    client = await lab.connect((leader + 1) % 3)
    for _ in range(30):
        await client.jetstream().publish("r.a", b"x")
    for name in ("worker", "reader"):
        await consumer(client, name)
        assert len(await fetch(client, name, 10, name == "worker")) == 10
    await lab.stop_node(leader)
    for name in ("worker", "reader"):
        assert await fetch(client, name, 1) == [(11, 11)]


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_they_come_along_when_their_stream_gets_replicas(lab: Lab, storage: str) -> None:
    await lab.formed()
    client = await lab.connect(0)
    one = {**R, "num_replicas": 1, "storage": storage}
    assert "error" not in await api(client, "STREAM.CREATE.R", **one)
    for number in range(30):
        await client.jetstream().publish(f"r.{number}", b"x")
    for name in KINDS:
        await consumer(client, name)
        await fetch(client, name, 10, KINDS[name]["ack_policy"] == "explicit")
    changed = await api(client, "STREAM.UPDATE.R", **{**one, "num_replicas": 3})
    assert "error" not in changed, changed
    await until(lambda: current(lab, "R", 3), seconds=40)
    await another_leads(lab, client)
    for name in KINDS:
        assert await fetch(client, name, 2) == [(11, 11), (12, 12)], name


async def test_those_of_one_replica_outlive_their_node(lab: Lab) -> None:
    """As with nats-server in a cluster; a single node forgets them."""
    await lab.formed()
    client = await lab.connect(0)
    one = {**R, "num_replicas": 1}
    leader = index_of(await api(client, "STREAM.CREATE.R", **one))
    client = await lab.connect((leader + 1) % 3)
    for _ in range(12):
        await client.jetstream().publish("r.a", b"x")
    for name in ("worker", "reader"):
        await consumer(client, name)
    assert await fetch(client, "worker", 10, ack=True)
    await lab.stop_node(leader)
    lab.start(leader)

    await until(lambda: served(client), seconds=40)
    names = (await api(client, "CONSUMER.NAMES.R"))["consumers"]
    assert sorted(names) == ["reader", "worker"]
    assert await fetch(client, "worker", 1) == [(11, 11)]


async def test_those_of_a_memory_stream_with_one_replica_begin_again(lab: Lab) -> None:
    """As with nats-server: stream and consumers are there, and have nothing; deleted ones
    are not, and nothing is kept of a deleted stream."""
    await lab.formed()
    client = await lab.connect(0)
    one = {**R, "num_replicas": 1, "storage": "memory"}
    leader = index_of(await api(client, "STREAM.CREATE.R", **one))
    client = await lab.connect((leader + 1) % 3)
    for _ in range(12):
        await client.jetstream().publish("r.a", b"x")
    for name in ("worker", "reader", "last"):
        await consumer(client, name)
    assert await fetch(client, "worker", 10, ack=True)
    changed = {"stream_name": "R", "config": {**KINDS["worker"], "description": "changed"}}
    changed["config"]["mem_storage"] = True
    assert "error" not in await api(client, "CONSUMER.CREATE.R.worker", **changed)
    assert (await api(client, "CONSUMER.DELETE.R.last"))["success"]
    before = await api(client, "CONSUMER.INFO.R.worker")
    await lab.stop_node(leader)
    lab.start(leader)

    await until(lambda: served(client), seconds=40)
    assert sorted((await api(client, "CONSUMER.NAMES.R"))["consumers"]) == ["reader", "worker"]
    after = await api(client, "CONSUMER.INFO.R.worker")
    assert (after["config"], after["created"]) == (before["config"], before["created"])
    assert after["config"]["description"] == "changed"
    assert (after["delivered"]["stream_seq"], after["num_pending"]) == (0, 0)
    await client.jetstream().publish("r.a", b"x")
    assert await fetch(client, "worker", 1) == [(1, 1)]
    assert (await api(client, "STREAM.DELETE.R"))["success"]
    table = lab.cluster(leader).jetstream.store().log.table
    assert not [key for owner in table.owners() for key in table.keys(owner) if b"made/" in key]


async def test_an_ordered_reader_is_not_an_entry_in_every_turn(lab: Lab) -> None:
    """Nor does the last that it got stay unwritten."""
    await lab.formed()
    client = await lab.connect(0)
    leader = index_of(await api(client, "STREAM.CREATE.R", **R))
    for _ in range(300):
        await client.publish("r.a", b"x")
    await until(lambda: current(lab, "R", 3))
    await consumer(client, "ordered")
    sub = await client.jetstream().pull_subscribe_bind("ordered", "R")
    cluster = lab.cluster(leader)
    assert cluster.groups is not None
    stream = cluster.here("$G", "R")
    assert stream is not None
    group = cluster.groups.groups[stream.group]

    def written() -> int:
        status = group.status()
        assert status is not None
        return status.last

    loop = asyncio.get_running_loop()
    begun, before = loop.time(), written()
    for _ in range(300):
        assert len(await sub.fetch(1, timeout=5)) == 1
    assert written() - before <= (loop.time() - begun) / PAUSE_S + 2

    async def saved() -> bool:
        follower = lab.cluster((leader + 1) % 3).groups
        assert follower is not None
        copy = follower.followed(stream.group)
        copies = {} if copy is None else {each.name: each for each in of_replica(copy)}
        return "ordered" in copies and copies["ordered"].numbers()["delivered_seq"] == 300

    await until(saved)
