"""Nodes of a cluster are one JetStream: streams are placed on any, and used from any."""

import shutil

import pytest

from tests.hub.lab import Lab, api
from tests.slow import one_in
from tests.waiting import until


async def test_streams_are_spread_and_used_from_every_node(lab: Lab) -> None:
    await lab.formed()
    clients = [await lab.connect(index) for index in range(3)]
    places = set()
    for index in range(6):
        config = {"name": f"S{index}", "subjects": [f"s{index}"]}
        made = await api(clients[index % 3], f"STREAM.CREATE.S{index}", **config)
        assert made["did_create"]
        places.add(made["cluster"]["leader"])
        js = clients[(index + 1) % 3].jetstream()
        assert (await js.publish(f"s{index}", b"x")).seq == 1
    assert places == {"n0", "n1", "n2"}
    names = [f"S{index}" for index in range(6)]
    for client in clients:
        assert (await api(client, "STREAM.NAMES"))["streams"] == names
        listed = await api(client, "STREAM.LIST")
        assert [s["config"]["name"] for s in listed["streams"]] == names
        assert all(s["state"]["messages"] == 1 for s in listed["streams"])
        assert (await api(client, "INFO"))["streams"] == 6
        sub = await client.jetstream().pull_subscribe("s1", "worker", stream="S1")
        info = await api(client, "CONSUMER.INFO.S1.worker")
        assert info["cluster"]["leader"]
        await sub.unsubscribe()
    (message,) = await (await clients[0].jetstream().pull_subscribe("s1", "worker")).fetch(1)
    await message.ack_sync()


async def test_a_name_and_a_subject_are_taken_once(lab: Lab) -> None:
    await lab.formed()
    first, other = await lab.connect(0), await lab.connect(1)
    config = {"name": "S", "subjects": ["s.>"]}
    assert "error" not in await api(first, "STREAM.CREATE.S", **config)
    assert "error" not in await api(other, "STREAM.CREATE.S", **config)
    other_config = {"name": "S", "subjects": ["t"]}
    refused = await api(other, "STREAM.CREATE.S", **other_config)
    assert refused["error"]["err_code"] == 10058
    overlapping = await api(other, "STREAM.CREATE.T", name="T", subjects=["s.a"])
    assert overlapping["error"]["err_code"] == 10065
    assert (await api(other, "STREAM.INFO.NONE"))["error"]["err_code"] == 10059
    assert (await api(other, "CONSUMER.INFO.NONE.c"))["error"]["err_code"] == 10059
    assert (await api(other, "STREAM.DELETE.S"))["success"]
    assert "error" not in await api(first, "STREAM.CREATE.S", **other_config)


@pytest.mark.parametrize("count", one_in(2, [2, 3]))
async def test_streams_survive_stops(lab: Lab, count: int) -> None:
    """With two of three stopped there is no leader; the third still has its own streams."""
    await lab.formed()
    client = await lab.connect(0)
    for index in range(3):
        await api(client, f"STREAM.CREATE.S{index}", name=f"S{index}", subjects=[f"s{index}"])
        await client.jetstream().publish(f"s{index}", b"x")
    for index in range(count):
        await lab.stop_node(index)
    if count == 2:
        await until(lambda: lab.cluster(2).group.leader == 0)
        client = await lab.connect(2)
        refused = await api(client, "STREAM.NAMES")
        assert refused["error"]["err_code"] == 10008
    for index in range(count):
        lab.start(index)
    await lab.settled(3)
    client = await lab.connect(1)
    listed = await api(client, "STREAM.LIST")
    assert [s["state"]["messages"] for s in listed["streams"]] == [1, 1, 1]


async def test_a_stream_that_was_deleted_meanwhile_is_removed(lab: Lab) -> None:
    await lab.formed()
    client = await lab.connect(0)
    for index in range(3):
        await api(client, f"STREAM.CREATE.S{index}", name=f"S{index}", subjects=[f"s{index}"])
    name = next(iter(next(iter(lab.cluster(2).jetstream.accounts.values())).streams))
    await lab.stop_node(2)
    await lab.settled(3)
    client = await lab.connect(lab.leader() or 0)
    assert (await api(client, f"STREAM.DELETE.{name}"))["success"]
    lab.start(2)
    await lab.settled(3)
    await until(lambda: lab.cluster(2).here("$G", name) is None)
    assert name not in (await api(client, "STREAM.NAMES"))["streams"]


async def test_a_node_that_was_emptied_comes_back_as_a_member(lab: Lab) -> None:
    """What it had is not made again as if it were new: numbers would be used twice."""
    await lab.formed()
    client = await lab.connect(0)
    for index in range(3):
        await api(client, f"STREAM.CREATE.S{index}", name=f"S{index}", subjects=[f"s{index}"])
        await client.jetstream().publish(f"s{index}", b"x")
    lost = next(iter(next(iter(lab.cluster(2).jetstream.accounts.values())).streams))
    await lab.stop_node(2)
    shutil.rmtree(lab.directory / "n2")
    lab.start(2)
    await lab.settled(3)
    state = lab.cluster(1).state
    await until(lambda: state.streams["$G", lost].assignment.lost != "")
    client = await lab.connect(1)
    refused = await api(client, f"STREAM.INFO.{lost}")
    assert refused["error"]["err_code"] == 10194
    assert "emptied" in refused["error"]["description"]
    listed = await api(client, "STREAM.LIST")
    assert listed["missing"] == [lost]
    assert [s["state"]["messages"] for s in listed["streams"]] == [1, 1]
    made = await api(client, "STREAM.CREATE.NEW", name="NEW", subjects=["new"])
    assert "error" not in made


async def test_too_few_nodes_refuse_with_the_words_of_the_anchor(lab: Lab) -> None:
    await lab.formed()
    client = await lab.connect(0)
    refused = await api(client, "STREAM.CREATE.S", name="S", subjects=["s"], num_replicas=5)
    assert refused["error"]["err_code"] == 10005
    assert refused["error"]["description"] == "no suitable peers for placement"
    placed = {"tags": ["az:1"]}
    made = await api(client, "STREAM.CREATE.S", name="S", subjects=["s"], placement=placed)
    assert made["cluster"]["leader"] == "n1"
    refused = await api(
        client, "STREAM.CREATE.T", name="T", subjects=["t"], placement={"tags": ["none"]}
    )
    text = "no suitable peers for placement, tags not matched ['none']"
    assert refused["error"]["description"] == text
