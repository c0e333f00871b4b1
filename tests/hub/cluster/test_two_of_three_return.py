"""All nodes are killed at once, and one does not come back as it was: a majority goes on."""

from pathlib import Path

import pytest
from nats.js.client import JetStreamContext

from bench.cluster.nodes import SERVERS, ClusterNodes, insist, whole
from tests.slow import one_in

COUNT = 200


async def check(js: JetStreamContext) -> None:
    """What was acknowledged is there, and more is taken."""
    for sequence in range(1, COUNT + 1, 20):
        assert (await js.get_msg("S", sequence)).data == b"%d" % sequence
    assert (await js.publish("s", b"more", timeout=20)).seq == COUNT + 1


@pytest.mark.parametrize("lost", one_in(2, ["emptied", "away"]))
async def test_a_majority_of_killed_nodes_is_enough(tmp_path: Path, lost: str) -> None:
    with ClusterNodes(SERVERS["headwater"], parent=tmp_path) as nodes:
        nodes.start_all()
        await nodes.ready()
        client = await nodes.client(1)
        await insist(client, "STREAM.CREATE.S", name="S", subjects=["s"], num_replicas=3)
        js = client.jetstream(timeout=10)
        for number in range(1, COUNT + 1):
            assert (await js.publish("s", b"%d" % number)).seq == number
        await whole(client, "S")
        for index in range(3):
            nodes.kill(index)
        for index in (1, 2):
            nodes.start(index)
        if lost == "emptied":
            nodes.wipe(0)
            nodes.start(0)
        await insist(client, "STREAM.INFO.S")
        await check(js)
        if lost == "away":
            nodes.start(0)
        await whole(client, "S")
        await client.close()
