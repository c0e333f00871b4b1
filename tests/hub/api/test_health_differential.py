"""/healthz of every node that has a replica, beside three nats-servers."""

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.hub.api.beside import Nodes, at_both, led
from tests.hub.lab import api
from tests.waiting import connected, until

PATHS = [
    "healthz?account=A&stream=S",
    "healthz?account=A&stream=S&consumer=c",
    "healthz?account=A&stream=S&consumer=none",
    "healthz?account=A&stream=none",
    "healthz?account=A&stream=S&consumer=none&details=1",
]


def get(port: int, path: str) -> tuple[int, Any]:
    """Status and answer of a page."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


async def healths(address: str, monitors: list[int]) -> list[Any]:
    """What every node says of a stream of three replicas, and of its consumer."""
    user = await connected(f"nats://a:a@{address}")
    try:
        await until(lambda: led(user), "there is a leader")
        stream = {"name": "S", "subjects": ["s"], "num_replicas": 3}
        assert "error" not in await api(user, "STREAM.CREATE.S", **stream)
        config = {"durable_name": "c", "ack_policy": "explicit"}
        made = await api(user, "CONSUMER.CREATE.S.c", stream_name="S", config=config)
        assert "error" not in made
    finally:
        await user.close()

    async def well() -> bool:
        found = [await asyncio.to_thread(get, port, PATHS[1]) for port in monitors]
        return all(status == 200 for status, _ in found)

    await until(well, "every replica has the consumer")
    return [[await asyncio.to_thread(get, port, path) for path in PATHS] for port in monitors]


async def test_followers_answer_for_their_replicas(tmp_path: Path) -> None:
    async def told(nodes: Nodes) -> list[Any]:
        return await healths(f"127.0.0.1:{nodes.port}", nodes.monitors)

    theirs, ours = await at_both(tmp_path, told, monitoring=True)
    assert ours == theirs
