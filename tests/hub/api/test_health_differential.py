"""/healthz of every node that has a replica, beside three nats-servers."""

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from bench.servers import free_port
from headwater.edge.conf.flags import parse_args
from tests.hub.api import test_api_differential as differential
from tests.hub.api.test_api_differential import anchors, led
from tests.hub.lab import Lab, api
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


async def test_followers_answer_for_their_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = differential.write_config
    monitors: list[int] = []

    def with_monitor(path: Path, index: int, ports: list[int], routes: list[int]) -> Path:
        config = written(path, index, ports, routes)
        monitors.append(free_port())
        with config.open("a") as file:
            file.write(f'http: "127.0.0.1:{monitors[-1]}"\n')
        return config

    monkeypatch.setattr(differential, "write_config", with_monitor)
    async with anchors(tmp_path) as address:
        wanted = await healths(address, monitors)
    monitors.clear()
    ports, routes = ([free_port() for _ in range(3)] for _ in range(2))
    lab = Lab(tmp_path)
    try:
        for index in range(3):
            path = tmp_path / str(index)
            path.mkdir()
            config = with_monitor(path, index, ports, routes)
            lab.run(index, parse_args(["-c", str(config)]).options)
        await lab.settled(3)
        assert await healths(f"127.0.0.1:{ports[0]}", monitors) == wanted
    finally:
        await lab.stop()
