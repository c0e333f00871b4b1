"""Streams of routed nodes, as long as streams are not shared by a cluster."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headwater.edge.conf.options import JetStreamOptions
from headwater.edge.monitor.pages.statsz import statsz

from .test_routes import Cluster, interest, until


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    found = Cluster()
    yield found
    await found.stop()


async def test_a_stream_name_is_taken_once_in_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    """Two streams of one name would both store and acknowledge each publish."""
    for name in ("a", "b"):
        settings = JetStreamOptions(enabled=True, store_dir=str(tmp_path / name))
        cluster.add(*cluster.ports[:1], jetstream=settings)
    await cluster.formed()
    clients = [await cluster.connect(index) for index in range(2)]

    async def api(index: int, request: str, **body: Any) -> Any:
        payload = json.dumps(body).encode() if body else b""
        answer = await clients[index].request(f"$JS.API.{request}", payload, timeout=3)
        return json.loads(answer.data)

    config = {"name": "S", "subjects": ["s"]}
    assert "error" not in await api(0, "STREAM.CREATE.S", **config)
    await until(lambda: interest(cluster.nodes[1], b"$HW.STREAM.S"))
    refused = await api(1, "STREAM.CREATE.S", **config)
    assert refused["error"]["err_code"] == 10058
    assert "another node" in refused["error"]["description"]
    assert (await clients[1].jetstream().publish("s", b"x", stream="S")).seq == 1
    assert "error" not in await api(0, "STREAM.CREATE.S", **config)
    assert "error" not in await api(0, "STREAM.DELETE.S")
    await until(lambda: not interest(cluster.nodes[1], b"$HW.STREAM.S"))
    assert "error" not in await api(1, "STREAM.CREATE.S", **config)


async def test_statistics_list_the_routes(cluster: Cluster) -> None:
    first = cluster.add()
    cluster.add(*cluster.ports)
    await cluster.formed()
    (route,) = statsz(first)["routes"]
    assert set(route) == {"rid", "name", "sent", "received", "pending"}
    assert route["name"] == "n1"
    assert set(route["sent"]) == set(route["received"]) == {"msgs", "bytes"}
