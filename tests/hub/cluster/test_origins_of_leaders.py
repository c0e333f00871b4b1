"""A stream with an origin while its leader changes: each goes on where the one before was."""

import asyncio
from functools import partial
from typing import Any

import msgspec
import nats.errors
import pytest
from nats.aio.client import Client

from tests.hub.lab import Lab, api
from tests.waiting import until

COUNT = 20
"""Messages of each leader."""


STEPS = 40
"""Of each publisher, while one leader leaves."""

PUBLISHERS = 5
"""They wait for each answer, all at the same time."""


async def add(client: Client) -> None:
    """One step after the other."""
    for _ in range(STEPS):
        await client.request("o", headers={"Nats-Incr": "1"}, timeout=20)


async def led_by_another(client: Client, stream: str, before: str) -> str:
    """The leader's name once another node leads, "" until then."""
    place = (await api(client, f"STREAM.INFO.{stream}")).get("cluster", {})
    leader: str = place.get("leader", "")
    return "" if leader == before else leader


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_a_leader_that_comes_back_repeats_nothing(lab: Lab, storage: str) -> None:
    """Messages that were taken, acked and removed under other leaders are not taken anew."""
    await lab.formed()
    client = await lab.connect(0)
    js = client.jetstream()
    await api(client, "STREAM.CREATE.O", name="O", subjects=["o"], num_replicas=1)
    fields: dict[str, Any] = {"storage": storage, "retention": "workqueue", "num_replicas": 3}
    await api(client, "STREAM.CREATE.Q", name="Q", sources=[{"name": "O"}], **fields)
    worker = await js.pull_subscribe("", "worker", stream="Q")
    done: list[bytes] = []
    leaders: list[str] = []
    leader = await until(partial(led_by_another, client, "Q", ""))
    while len(leaders) < 2 or leader not in leaders[:-1]:
        leaders.append(leader)
        for number in range(COUNT):
            await js.publish("o", b"%s %d" % (leader.encode(), len(leaders) * COUNT + number))
        while len(done) < len(leaders) * COUNT:
            for message in await worker.fetch(COUNT, timeout=10):
                await message.ack_sync()
                done.append(message.data)
        assert (await api(client, "STREAM.LEADER.STEPDOWN.Q"))["success"]
        leader = await until(partial(led_by_another, client, "Q", leader))
    await js.publish("o", b"last")
    while b"last" not in done:
        for message in await worker.fetch(COUNT, timeout=10):
            await message.ack_sync()
            done.append(message.data)
    assert len(done) == len(set(done)) == len(leaders) * COUNT + 1, "messages came twice"


async def test_a_sum_of_counters_goes_on_where_it_was(lab: Lab) -> None:
    """What it stores differs from what the origin has: that is no other history of the origin."""
    await lab.formed()
    client = await lab.connect(0)
    js = client.jetstream()
    counters: dict[str, Any] = {"allow_msg_counter": True, "allow_direct": True}
    await api(client, "STREAM.CREATE.O", name="O", subjects=["o"], num_replicas=1, **counters)
    await api(
        client, "STREAM.CREATE.S", name="S", sources=[{"name": "O"}], num_replicas=3, **counters
    )
    leader = await until(partial(led_by_another, client, "S", ""))
    for _ in range(3):
        # Leaders change while messages come: the next one knows more than its cursor does.
        steps = asyncio.gather(*(add(client) for _ in range(PUBLISHERS)))
        assert (await api(client, "STREAM.LEADER.STEPDOWN.S"))["success"]
        leader = await until(partial(led_by_another, client, "S", leader))
        await steps
    total = 3 * STEPS * PUBLISHERS + 1
    await client.request("o", headers={"Nats-Incr": "1"})

    async def last() -> Any:
        try:
            found = await js.get_last_msg("S", "o", direct=True)
        except nats.errors.Error:
            # While a leader changes there may be no answer, or an older one.
            return None
        return found if found.data == b'{"val":"%d"}' % total else None

    found = await until(last)
    assert found.seq == total, "messages came twice"


async def test_a_stream_that_another_node_has_now_is_not_deleted(lab: Lab) -> None:
    """One of one replica, whose data is removed here: its consumer at the origin is that of the
    node that has it, and no advisory says that it or its consumer is deleted."""
    await lab.formed()
    client = await lab.connect(0)
    js = client.jetstream()
    await api(client, "STREAM.CREATE.O", name="O", subjects=["o"], num_replicas=3)
    place = {"placement": {"tags": ["az:1"]}}
    await api(client, "STREAM.CREATE.M", name="M", mirror={"name": "O"}, num_replicas=1, **place)
    config = {"durable_name": "C", "ack_policy": "explicit"}
    await api(client, "CONSUMER.CREATE.M.C", stream_name="M", config=config)
    await js.publish("o", b"1")
    await until(partial(has_messages, client, "M", 1))
    await until(lambda: copying(lab) == 1, "a consumer at the origin")
    told = await client.subscribe("$JS.EVENT.ADVISORY.*.DELETED.>")
    await client.flush()
    cluster = lab.cluster(1)
    known = cluster.state.stream("$G", "M")
    assert known is not None
    others = [number for number in cluster.group.members if number != cluster.number]
    elsewhere = msgspec.structs.replace(known.assignment, peers=others[:1])
    cluster.applier.reconcile(elsewhere, new=False)
    assert cluster.applier.local(known.assignment) is None
    for index in range(3):
        # What the node has told and asked by now has arrived.
        await api(await lab.connect(index), "STREAM.INFO.O")
    await client.flush()
    assert told.pending_msgs == 0
    assert copying(lab) == 1


def copying(lab: Lab) -> int:
    """How many consumers copy the stream O, which no list shows."""
    found = [cluster.here("$G", "O") for cluster in lab.clusters()]
    return sum(len(stream.consumers) for stream in found if stream is not None)


async def has_messages(client: Client, stream: str, count: int) -> bool:
    """Whether a stream has so many."""
    info = await api(client, f"STREAM.INFO.{stream}")
    return bool(info.get("state", {}).get("messages") == count)
