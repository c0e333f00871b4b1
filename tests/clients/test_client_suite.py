"""Suites of clients find Headwater where they look for nats-server."""

import asyncio
import json
import ssl
import subprocess
from pathlib import Path
from typing import Any

import nats

from tests.clients.client_suite import asked_servers, run, stand_in


def test_nats_server_is_headwater(tmp_path: Path) -> None:
    environment = stand_in(tmp_path)
    command = ["sh", "-c", "nats-server --help"]
    ours = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "headwater serve" in ours.stdout


def test_the_status_is_the_suite_s(tmp_path: Path) -> None:
    assert run(tmp_path, ["sh", "-c", "nats-server -v && touch seen && exit 3"]) == 3
    assert (tmp_path / "seen").exists()


def test_a_suite_that_asks_for_servers_gets_clusters_that_it_restarts(tmp_path: Path) -> None:
    with asked_servers(tmp_path) as address:
        asyncio.run(use(address))
    assert {each.name for each in tmp_path.iterdir()} == {"tester"}


async def use(address: str) -> None:
    """Ask for two nodes with TLS, write to them, and stop and start one of them."""
    desk = await nats.connect(address)

    async def ask(what: str, **asked: Any) -> dict[str, Any]:
        answer = await desk.request(f"tester.{what}", json.dumps(asked).encode(), timeout=30)
        assert not answer.headers, answer.headers
        made: dict[str, Any] = json.loads(answer.data)
        return made

    parts = {"jetstream": "max_memory_store: 1MB", "top": "max_payload: 1000"}
    made = await ask(
        "create.cluster", servers=2, jetstream=True, snippets=parts, tls={"mode": "server"}
    )
    context = ssl.create_default_context(cadata=made["tls"]["ca_pem"])
    urls = [f"tls://127.0.0.1:{server['port']}" for server in made["servers"]]
    client = await nats.connect(urls[0], tls=context)
    assert client.max_payload == 1000
    heard = await client.subscribe("far")
    await client.flush()
    name = made["servers"][1]["name"]
    await ask("stop.server", name=name)
    status = await ask("status", instance_id=made["id"])
    assert [server["running"] for server in status["instances"][0]["servers"]] == [True, False]
    await ask("start.server", name=name)
    await ask("update.server", name=name, snippets={**parts, "top": "max_payload: 2000"})
    await ask("reload.server", name=name)
    other = await nats.connect(urls[1], tls=context)
    assert other.max_payload == 2000
    while not heard.pending_msgs:  # Until the route carries it.
        await other.publish("far", b"seen")
        await other.flush()
    await client.close()
    await other.close()
    assert await ask("destroy", instance_id=made["id"]) == {"destroyed": True}
    unknown = await desk.request("tester.create.super-cluster", b"{}", timeout=30)
    assert unknown.headers is not None
    assert "is not made here" in unknown.headers["Nats-Service-Error"]
    await desk.close()
