"""A node has no more rows of anything when what came has gone again.

Each story is told `TOLD` times in each of `SPANS` spans. What has a row more for each time, in all
spans but the first, grows for ever, until a bound that is far, or for some seconds: `BOUNDED` says
which do the latter. With `HEADWATER_GROWTH` in the environment, they are told so many times.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest

from headwater.deploy.compose import services_for
from headwater.edge.conf.load import load_text
from headwater.edge.node.node import Node
from tests.growth.containers import Rows, grown, rows_of
from tests.growth.stories import ALONE, ANYWHERE, CLUSTERED, Story, World
from tests.hub.lab import Lab
from tests.slow import one_in

TOLD = int(os.environ.get("HEADWATER_GROWTH", "8"))
SPANS = 3

BOUNDED = {
    "RaftLog > list": "entries of a group, up to its next snapshot",
    "AdoptedRecords > dict": "records of a segment of the log, until it is given back",
    "MetaState > dict": "deleted streams, `GONE_MAX`",
    "Absences > dict": "leaders that were told of, `LED_MAX`",
    "LateDeliveries > dict": "leaders that have left, `LEFT_MAX`",
    "Turns > dict": "changes of leaders, `REMEMBERED_MAX`",
    "RecentRequests > deque": "requests of the API, until the next ones, `REMEMBERED_MAX`",
    "RecentRequests > dict": "the same by digest",
    "State > list": "changes of a consumer's progress, until its state is written whole",
    "Cluster > dict": "since when streams are led, `SINCE_MIN` more than there are",
    "Metas > list": "descriptions until they are in files, a second later",
    "Transport > set": "answers to other nodes, `CALLS_MAX`",
}
"""The end of the way to it, and what bounds it."""

CONFIG = """
listen: "127.0.0.1:-1"
max_closed_clients: 3
jetstream {{ store_dir: "{store}" }}
websocket {{ listen: "127.0.0.1:-1", no_tls: true }}
leafnodes {{ listen: "127.0.0.1:-1" }}
no_auth_user: a
accounts {{
  A {{ jetstream: enabled, users: [ {{ user: a, password: a }} ]
       exports: [ {{ service: "svc.>" }} ] }}
  B {{ users: [ {{ user: b, password: b }} ]
       imports: [ {{ service: {{ account: A, subject: "svc.>" }} }} ] }}
}}
"""


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[Node]:
    """A node with listeners of all kinds."""
    options = load_text(CONFIG.format(store=tmp_path / "store")).options
    node = Node(options, asyncio.get_running_loop())
    node.services.extend(services_for(options))
    node.start()
    yield node
    await node.stop()


async def told(story: Story, world: World, *roots: Node) -> dict[str, int]:
    """What grew in every span but the first: the way to it, and by how much."""
    rows: list[Rows] = []
    for span in range(SPANS):
        for number in range(span * TOLD, (span + 1) * TOLD):
            await story(world, number)
        await world.client.flush()
        rows.append(rows_of(roots))
    spans = [grown(old, new, TOLD) for old, new in zip(rows[:-1], rows[1:], strict=True)]
    return {
        way: rows[-1][key][1] - rows[0][key][1]
        for key in set.intersection(*spans)
        if not (way := rows[-1][key][2]).endswith(tuple(BOUNDED))
    }


@pytest.mark.parametrize("story", ALONE + ANYWHERE, ids=lambda story: story.__name__)
async def test_nothing_stays_at_a_node(alone: Node, story: Story) -> None:
    ports = {kind: int(urls[0].rpartition(":")[2]) for kind, urls in alone.ports().items()}
    async with await nats.connect(f"nats://127.0.0.1:{ports['nats']}") as client:
        world = World(client, ports)
        try:
            assert await told(story, world, alone) == {}
        finally:
            if "other" in world.kept:
                await world.kept["other"].close()


@pytest.mark.parametrize("story", one_in(2, CLUSTERED), ids=lambda story: story.__name__)
async def test_nothing_stays_in_a_cluster(lab: Lab, story: Story) -> None:
    await lab.formed()
    world = World(await lab.connect(0), {}, replicas=3)
    assert await told(story, world, *(node for node in lab.nodes if node is not None)) == {}
