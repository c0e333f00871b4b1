"""What messages of a replicated stream in memory count, though its replicas keep them in a log."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from bench.servers import Server, anchor
from tests.hub.lab import Lab, api
from tests.waiting import until

CONFIG: dict[str, Any] = {"name": "S", "subjects": ["s.>"], "storage": "memory"}


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    found = Lab(tmp_path)
    await found.formed()
    yield found
    await found.stop()


async def fill(client: Client) -> None:
    """Messages with headers and without; some are gone again."""
    js = client.jetstream()
    for number in range(6):
        headers = {"A": "b"} if number % 2 else None
        await js.publish(f"s.{number}", bytes(10 * number), headers=headers)
    for sequence in (2, 3):
        await api(client, "STREAM.MSG.DELETE.S", seq=sequence)


async def counted(client: Client) -> dict[str, int]:
    """What the stream and its account say of it."""
    state = (await api(client, "STREAM.INFO.S"))["state"]
    account = await api(client, "INFO")
    return {
        **{key: state[key] for key in ("messages", "bytes")},
        **{key: account[key] for key in ("memory", "storage")},
    }


async def counts(client: Client, wanted: dict[str, int]) -> None:
    """Wait until each replica has removed what is to be gone, and they count so much."""

    async def found() -> bool:
        return await counted(client) == wanted

    await until(found, f"{wanted} is counted", 20)


async def of_nats_server() -> dict[str, int]:
    """What nats-server says of a stream without replicas."""
    with Server(anchor()) as server:
        client = await nats.connect(f"nats://127.0.0.1:{server.port}")
        await api(client, "STREAM.CREATE.S", **CONFIG)
        await fill(client)
        found = await counted(client)
        await client.close()
    return found


async def test_they_count_as_in_memory(lab: Lab) -> None:
    """With one replica, with three, and when another node leads that has started since."""
    theirs = await of_nats_server()
    client = await lab.connect(0)
    assert "error" not in await api(client, "STREAM.CREATE.S", **CONFIG, num_replicas=3)
    await fill(client)
    three = {**theirs, "memory": 3 * theirs["memory"]}
    await counts(client, three)
    await api(client, "STREAM.LEADER.STEPDOWN.S", placement={"preferred": "n0"})
    await lab.stop_node(1)
    lab.start(1)

    async def led_by_the_new_one() -> bool:
        await api(client, "STREAM.LEADER.STEPDOWN.S", placement={"preferred": "n1"})
        info = await api(client, "STREAM.INFO.S")
        return bool(info.get("cluster", {}).get("leader") == "n1")

    await until(led_by_the_new_one, "the node leads that has read its store", 40)
    await counts(client, three)


async def test_a_limit_of_bytes_counts_them_so(lab: Lab) -> None:
    client = await lab.connect(0)
    # Each counts its subject, its 100 bytes and 16.
    fields = {**CONFIG, "num_replicas": 3, "max_bytes": 5 * (len("s.a") + 100 + 16)}
    assert "error" not in await api(client, "STREAM.CREATE.S", **fields)
    for _ in range(8):
        await client.jetstream().publish("s.a", bytes(100))
    state = (await api(client, "STREAM.INFO.S"))["state"]
    assert (state["messages"], state["bytes"]) == (5, fields["max_bytes"])
