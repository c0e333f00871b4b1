"""Nodes of a cluster, each with a sealing key of its own, replaced one after the other."""

from functools import partial
from typing import Any

from nats.aio.client import Client

from headwater.edge.conf.options import ClusterOptions, JetStreamOptions, Options
from headwater.hub.api.cluster import Cluster
from tests.hub.lab import Lab, api
from tests.slow import slow
from tests.waiting import until

MESSAGES = 40
SECRET = b"said in confidence"


def options(lab: Lab, index: int, **fields: Any) -> Options:
    """Of one node; `fields` are of its `jetstream` block."""
    return Options(
        host="127.0.0.1",
        port=-1,
        server_name=f"n{index}",
        jetstream=JetStreamOptions(
            enabled=True, store_dir=str(lab.directory / f"n{index}"), **fields
        ),
        cluster=ClusterOptions(
            name="C", host="127.0.0.1", port=lab.ports[index], routes=lab.routes
        ),
    )


async def led(client: Client) -> bool:
    """Whether the stream has a leader."""
    answer = await api(client, "STREAM.INFO.R")
    return bool(answer.get("cluster", {}).get("leader"))


async def test_they_are_replaced_while_the_others_serve(lab: Lab) -> None:
    """With the cipher, and without a message that is lost. No file of a node has one in plain."""
    for index in range(3):
        lab.run(index, options(lab, index, key=f"the first key of node {index}"))
    await lab.settled(3)
    client = await lab.connect(0)
    await api(client, "STREAM.CREATE.R", name="R", subjects=["r.>"], num_replicas=3)
    js = client.jetstream()
    count = 0
    for index in range(3):
        for _ in range(MESSAGES):
            count += 1
            assert (await js.publish("r.a", SECRET + b" %d" % count)).seq == count
        await lab.stop_node(index)
        other = await lab.connect((index + 1) % 3)
        js = other.jetstream()
        await until(partial(led, other), "the others lead it")
        count += 1
        assert (await js.publish("r.a", SECRET + b" %d" % count)).seq == count
        key = f"the second key of node {index}"
        before = f"the first key of node {index}"
        lab.run(index, options(lab, index, key=key, previous_key=before, cipher="aes"))
        await lab.settled(3)
    for index in range(3):
        await lab.stop_node(index)
        key = f"the second key of node {index}"
        lab.run(index, options(lab, index, key=key, cipher="aes"))
        await lab.settled(3)
    js = (await lab.connect(0)).jetstream()
    for number in range(1, count + 1):
        message = await js.get_msg("R", number)
        assert message.data == SECRET + b" %d" % number
    assert not any(SECRET in content for content in stored(lab))


def stored(lab: Lab) -> list[bytes]:
    """All bytes of all files of all nodes, the commit log's among them."""
    found = [path.read_bytes() for path in lab.directory.rglob("*") if path.is_file()]
    assert found
    return found


def packed(cluster: Cluster) -> bool:
    """Whether a node has nothing left to pack again, nor slots to wipe."""
    node = cluster.jetstream.store()
    return not node.repacker.waiting and not node.eraser._pending


@slow
async def test_a_plain_cluster_is_sealed_node_by_node(lab: Lab) -> None:
    """What was written before is wiped, in the commit log, too."""
    for index in range(3):
        lab.run(index, options(lab, index))
    await lab.settled(3)
    client = await lab.connect(0)
    await api(client, "STREAM.CREATE.R", name="R", subjects=["r.>"], num_replicas=3)
    js = client.jetstream()
    for number in range(1, MESSAGES + 1):
        assert (await js.publish("r.a", SECRET + b" %d" % number)).seq == number
    assert any(SECRET in content for content in stored(lab))
    for index in range(3):
        await lab.stop_node(index)
        lab.run(index, options(lab, index, key=f"the key of node {index}"))
        await lab.settled(3)
    await until(lambda: all(map(packed, lab.clusters())), "everything is packed again", 60)
    assert not any(SECRET in content for content in stored(lab))
    js = (await lab.connect(0)).jetstream()
    await until(partial(led, lab.clients[-1]), "the stream is led")
    assert (await js.publish("r.a", SECRET + b" at last")).seq == MESSAGES + 1
    assert not any(SECRET in content for content in stored(lab))
    for number in range(1, MESSAGES + 1):
        assert (await js.get_msg("R", number)).data == SECRET + b" %d" % number
