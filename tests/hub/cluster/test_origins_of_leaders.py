"""A stream with an origin while its leader changes: each goes on where the one before was."""

from functools import partial
from typing import Any

import pytest
from nats.aio.client import Client

from tests.hub.lab import Lab, api
from tests.waiting import until

COUNT = 20
"""Messages of each leader."""


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
