"""Streams of one node get replicas, more and fewer again, while they are written and read."""

import asyncio
import gc
from functools import partial

import pytest
from nats.aio.client import Client

from headwater.hub.stored.sending import Sending
from tests.hub.cluster.test_moves import R, Traffic, nodes_of
from tests.hub.lab import Lab, api
from tests.slow import one_in
from tests.waiting import until

STEPS = (3, 5, 3, 1, 3)


@pytest.fixture
async def five(lab: Lab) -> Lab:
    """A cluster of five nodes."""
    return await lab.resized(5)


async def has(client: Client, replicas: int) -> bool:
    """Whether so many nodes have the stream, and all have everything."""
    try:
        answer = await api(client, "STREAM.INFO.R")
    except TimeoutError:
        return False
    if "error" in answer or "desired" in answer["cluster"]:
        return False
    rows = answer["cluster"].get("replicas", [])
    return len(nodes_of(answer)) == replicas and all(row["current"] for row in rows)


def sendings() -> set[int]:
    """Which states of groups are on their way from a node, or held as if they were."""
    gc.collect()
    return {id(one) for one in gc.get_objects() if isinstance(one, Sending)}


@pytest.mark.parametrize("storage", one_in(2, ["file", "memory"]))
async def test_a_stream_gets_more_and_fewer_replicas_under_load(five: Lab, storage: str) -> None:
    client, others = await five.connect(0), sendings()
    fields = {**R, "storage": storage, "num_replicas": 1}
    assert "error" not in await api(client, "STREAM.CREATE.R", **fields)
    traffic = Traffic(client)
    await traffic.begin()
    try:
        for replicas in STEPS:
            fields["num_replicas"] = replicas
            changed = await api(client, "STREAM.UPDATE.R", **fields)
            assert changed["config"]["num_replicas"] == replicas, changed
            await until(partial(has, client, replicas), f"{replicas} replicas", 40)
            before = len(traffic.acked)
            await until(lambda acked=before: len(traffic.acked) > acked, "acks go on", 40)
        await traffic.end()
        assert "error" not in await api(client, "STREAM.DELETE.R")
        await until(lambda: not sendings() - others, "nothing is held of what was sent")
    finally:
        traffic.stop()


async def test_a_stream_gets_fewer_replicas_while_a_node_is_away(lab: Lab) -> None:
    """The one that is away leaves first: with it, the one that is left alone leads nothing."""
    await lab.formed()
    for away in range(1, 3):
        name = f"R{away}"
        fields = {**R, "name": name, "subjects": [f"{name}.>"], "num_replicas": 3}
        client = await lab.connect(0)
        assert "error" not in await api(client, f"STREAM.CREATE.{name}", **fields)
        await until(partial(is_led_by, client, name, "n0"), "n0 leads")
        await client.jetstream().publish(f"{name}.x", b"before")
        await lab.stop_node(away)
        await until(lambda: lab.leader() is not None, "the others go on")
        fields["num_replicas"] = 1
        changed = await api(client, f"STREAM.UPDATE.{name}", **fields)
        assert changed["config"]["num_replicas"] == 1, changed
        await until(partial(is_alone, client, name), f"one replica without n{away}")
        assert (await client.jetstream().publish(f"{name}.x", b"after")).seq == 2
        lab.start(away)
        await lab.settled(3)


async def is_led_by(client: Client, name: str, node: str) -> bool:
    """Whether a node leads a stream; asks it to."""
    answer = await api(client, f"STREAM.INFO.{name}")
    if answer.get("cluster", {}).get("leader") == node:
        return True
    await api(client, f"STREAM.LEADER.STEPDOWN.{name}", placement={"preferred": node})
    return False


async def is_alone(client: Client, name: str) -> bool:
    """Whether one node has a stream, and the cluster knows."""
    cluster = (await api(client, f"STREAM.INFO.{name}")).get("cluster", {})
    return bool(cluster) and "desired" not in cluster and not cluster.get("replicas")


async def test_what_was_in_memory_is_whole_on_every_node(lab: Lab) -> None:
    """Holes, the first sequence, headers, and a consumer's progress come along."""
    await lab.formed()
    client = await lab.connect(0)
    fields = {"name": "M", "subjects": ["m.>"], "storage": "memory", "num_replicas": 1}
    await api(client, "STREAM.CREATE.M", **fields)
    js = client.jetstream()
    for number in range(1, 301):
        head = {"Nats-Msg-Id": f"id-{number}", "Own": "x"}
        await js.publish(f"m.{number % 7}", b"%d" % number * 5000, headers=head)
    await api(client, "STREAM.PURGE.M", seq=11)
    for number in range(50, 100, 3):
        await js.delete_msg("M", number)
    await js.delete_msg("M", 300)
    sub = await js.pull_subscribe("m.>", "worker", stream="M")
    for message in await sub.fetch(20):
        await message.ack_sync()
    before = await api(client, "STREAM.INFO.M", deleted_details=True)
    changed = await api(client, "STREAM.UPDATE.M", **{**fields, "num_replicas": 3})
    assert changed["config"]["num_replicas"] == 3

    async def whole() -> bool:
        info = await api(client, "STREAM.INFO.M")
        rows = info.get("cluster", {}).get("replicas", [])
        return len(rows) == 2 and all(row["current"] for row in rows)

    await until(whole, "three replicas", 40)
    for _ in range(3):
        info = await api(client, "STREAM.INFO.M", deleted_details=True)
        kept = ("messages", "first_seq", "last_seq", "deleted", "num_deleted")
        assert [info["state"][key] for key in kept] == [before["state"][key] for key in kept]
        message = await js.get_msg("M", 42)
        assert (message.data, message.headers["Own"]) == (b"42" * 5000, "x")
        place = (await js.consumer_info("M", "worker")).ack_floor
        assert (place.stream_seq, place.consumer_seq) == (30, 20)
        assert (await js.publish("m.0", b"", headers={"Nats-Msg-Id": "id-299"})).duplicate
        # Its message was removed before the others came.
        assert (await js.publish("m.0", b"", headers={"Nats-Msg-Id": "id-300"})).duplicate
        await until(partial(stepped_down, client), "another leader")
    assert (await js.publish("m.0", b"last")).seq == 301


async def stepped_down(client: Client) -> bool:
    """Whether another node has come to lead."""
    before = (await api(client, "STREAM.INFO.M"))["cluster"]["leader"]
    if "error" in await api(client, "STREAM.LEADER.STEPDOWN.M"):
        return False
    for _ in range(200):
        info = await api(client, "STREAM.INFO.M")
        leader = info.get("cluster", {}).get("leader")
        if leader and leader != before:
            return True
        await asyncio.sleep(0)
    return False
