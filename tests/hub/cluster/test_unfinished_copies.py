"""What a replicated source has not committed stays in the work queue that it is taken from."""

import signal
from pathlib import Path
from typing import Any

import nats

from bench.cluster.nodes import SERVERS, ClusterNodes, leader_of, whole
from tests.hub.lab import api
from tests.waiting import until

COUNT = 20
"""Messages, more than a fresh receiver gets before it is asked whether all has arrived."""


async def test_a_queue_keeps_what_its_copy_may_lose(tmp_path: Path) -> None:
    """A quorum is away, so the copy's leader commits nothing, and may be replaced by a node that
    knows nothing of it. The queue itself has one replica, and takes messages all the time."""
    with ClusterNodes(SERVERS["headwater"], parent=tmp_path) as nodes:
        nodes.start_all()
        await nodes.ready()
        client = await nodes.client(0)
        await api(client, "STREAM.CREATE.T", name="T", sources=[{"name": "O"}], num_replicas=3)
        await whole(client, "T")
        at = await leader_of(client, "T")
        queue: dict[str, Any] = {"retention": "workqueue", "placement": {"tags": [f"az:{at}"]}}
        await api(client, "STREAM.CREATE.O", name="O", subjects=["o"], num_replicas=1, **queue)
        others = [number for number in range(nodes.size) if number != at]
        async with await nats.connect(f"nats://127.0.0.1:{nodes.ports[at]}") as near:
            await until(lambda: source_works(near), "a source that takes")
            lost = await near.subscribe("$JS.EVENT.ADVISORY.STREAM.QUORUM_LOST.T")
            await near.flush()
            for number in others:
                nodes.signal(number, signal.SIGSTOP)
            for _ in range(COUNT):
                await near.jetstream().publish("o", bytes(1024))
            await lost.next_msg(15)
            assert (await api(near, "STREAM.INFO.O"))["state"]["messages"] == COUNT
            for number in others:
                nodes.signal(number, signal.SIGCONT)
            await until(lambda: moved(near), "a copy of everything")
        await client.close()


async def source_works(client: Any) -> bool:
    """Whether the source has a consumer at its origin."""
    info = await api(client, "STREAM.INFO.T")
    return any(one.get("active", -1) >= 0 for one in info.get("sources", ()))


async def moved(client: Any) -> bool:
    """Whether the copy has everything, and the queue nothing."""
    infos = [await api(client, f"STREAM.INFO.{name}") for name in ("T", "O")]
    return [info.get("state", {}).get("messages") for info in infos] == [COUNT, 0]
