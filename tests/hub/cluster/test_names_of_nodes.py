"""A node is its name and its folder: folders that are exchanged, and two nodes with one name."""

import asyncio
import base64
from pathlib import Path

from bench.cluster.nodes import SERVERS, ClusterNodes, insist
from headwater.edge.conf.options import ClusterOptions, JetStreamOptions, Options
from tests.hub.lab import Lab, api
from tests.hub.routes.test_routes import free_port
from tests.waiting import until


def exchange(one: Path, other: Path) -> None:
    """Each folder takes the other's place."""
    aside = one.with_suffix(".aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


async def test_a_node_does_not_start_on_the_folder_of_another_one(tmp_path: Path) -> None:
    """It would make the other one's streams of one replica anew, empty."""
    with ClusterNodes(SERVERS["headwater"], parent=tmp_path) as nodes:
        nodes.start_all()
        await nodes.ready()
        client = await nodes.client(2)
        for index in range(2):
            placement = {"tags": [f"az:{index}"]}
            await insist(client, f"STREAM.CREATE.S{index}", name=f"S{index}", placement=placement)
            await client.jetstream().publish(f"S{index}", b"kept")
        for index in range(2):
            nodes.stop(index)
        exchange(nodes.store(0), nodes.store(1))
        for index in range(2):
            nodes.start(index)
            process = nodes.processes[index]
            assert process is not None
            assert await asyncio.to_thread(process.wait) == 1
            assert "was written by another node of a cluster" in nodes.log(index)
        exchange(nodes.store(0), nodes.store(1))
        for index in range(2):
            nodes.start(index)
        await nodes.ready()
        for index in range(2):
            answer = await insist(client, f"STREAM.MSG.GET.S{index}", seq=1)
            assert answer["message"]["data"] == base64.b64encode(b"kept").decode()
        await client.close()


async def test_a_second_node_of_a_name_takes_nothing_from_the_first(
    lab: Lab, tmp_path: Path
) -> None:
    """Two nodes of three are there, which is a quorum, and another server has one's name."""
    await lab.formed()
    client = await lab.connect(1)
    await api(client, "STREAM.CREATE.S", name="S", num_replicas=3)
    await lab.stop_node(0)
    options = Options(
        host="127.0.0.1",
        port=-1,
        server_name="n2",
        jetstream=JetStreamOptions(enabled=True, store_dir=str(tmp_path / "second")),
        cluster=ClusterOptions(name="C", host="127.0.0.1", port=free_port(), routes=lab.routes),
    )
    second = lab.run(0, options)
    routes = lab.service(1).route_service.routes
    assert routes is not None
    await until(lambda: routes.has(second.server_id))
    js = client.jetstream()
    for number in range(1, 20):
        assert (await js.publish("S", b"x", timeout=20)).seq == number
    conns = lab.cluster(1).transport.conns
    await lab.stop_node(2)
    await until(lambda: [c.session.peer.server_id for c in conns.values()] == [second.server_id])
