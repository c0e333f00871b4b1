"""A stream of one node gets its first replicas: its clients notice a pause, and nothing else."""

import json
from functools import partial
from typing import Any

import pytest
from nats.aio.client import Client

from headwater.hub.node.service import ClusterService
from tests.hub.cluster.one_stream import STREAM
from tests.hub.cluster.test_absences import Load, stored
from tests.hub.lab import Lab, api
from tests.slow import one_in
from tests.waiting import until

ROUNDS = 5


def get(load: Load, client: Client, name: str) -> None:
    """Get the last message directly, again and again."""
    js = client.jetstream()

    async def one(_: int) -> None:
        await js.get_last_msg("S", f"s.{name}", direct=True)

    load.go_on(f"get {name}", one)


@pytest.mark.parametrize("storage", one_in(2, ["file", "memory"]))
async def test_nobody_notices_that_a_stream_gets_replicas(lab: Lab, storage: str) -> None:
    await lab.formed()
    clients = [await lab.connect(index) for index in range(3)]
    fields = {**STREAM, "storage": storage, "allow_direct": True, "num_replicas": 1}
    for number in range(ROUNDS):
        client = clients[number % 3]
        assert "error" not in await api(client, "STREAM.CREATE.S", **fields)
        load = Load()
        for index, other in enumerate(clients):
            for lane in "abcd":
                load.publish(other, f"p{index}{lane}")
            await load.consume(other, f"c{index}")
        await load.more()
        for index, other in enumerate(clients):
            get(load, other, f"p{index}a")
        await load.more()
        changed = await api(client, "STREAM.UPDATE.S", **{**fields, "num_replicas": 3})
        assert "error" not in changed, changed
        await load.more()
        await load.end()
        assert load.errors == []
        found = await stored(client)
        assert sorted(load.acked) == sorted(found.items())
        await until(lambda c=client: _whole(c))
        assert "error" not in await api(client, "STREAM.DELETE.S")


async def test_a_node_stops_while_its_stream_gets_replicas(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """At whatever moment: nothing is lost, and the stream gets its replicas later."""
    await lab.formed()
    fields = {**STREAM, "num_replicas": 1}
    for number in range(4):
        client = await lab.connect(0)
        made = await api(client, "STREAM.CREATE.S", **fields)
        holder = int(made["cluster"]["leader"][1:])
        client = await lab.connect((holder + 1) % 3)
        for count in range(20):
            await client.jetstream().publish("s.a", b"%d" % count)
        body = json.dumps({**fields, "num_replicas": 3}).encode()
        await client.publish("$JS.API.STREAM.UPDATE.S", body)
        await client.flush()
        node = lab.service(holder)
        if number:
            await until(partial(_begins, node))
        await lab.stop_node(holder)
        lab.start(holder)
        await until(partial(_grows, client, fields), "the update is accepted", 40)
        await until(lambda c=client: _whole(c), "three replicas", 40)
        assert len(await stored(client)) == 20
        assert "error" not in await api(client, "STREAM.DELETE.S")
    assert "report this fault" not in caplog.text


def _begins(node: ClusterService) -> bool:
    """Whether a node has begun to make a group of its stream, or has made one."""
    assert node.absences is not None and node.cluster is not None
    stream = node.cluster.here("$G", "S")
    return bool(node.absences.absent) or (stream is not None and stream.group != 0)


async def _grows(client: Client, fields: dict[str, Any]) -> bool:
    return "error" not in await api(client, "STREAM.UPDATE.S", **{**fields, "num_replicas": 3})


async def _whole(client: Client) -> bool:
    rows = (await api(client, "STREAM.INFO.S"))["cluster"].get("replicas", [])
    return len(rows) == 2 and all(row["current"] for row in rows)
