"""What is told of leaders of streams and consumers in a cluster, beside three nats-servers."""

import asyncio
import json
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from tests.hub.api.beside import Nodes, at_both, led
from tests.hub.lab import api
from tests.waiting import connected, until

PREFIX = "$JS.EVENT.ADVISORY."
STREAM = {"subjects": ["s"], "num_replicas": 3}
CONSUMERS: dict[str, dict[str, Any]] = {
    "durable": {"durable_name": "durable", "ack_policy": "explicit"},
    "one": {"durable_name": "one", "ack_policy": "explicit", "num_replicas": 1},
    "ephemeral": {"ack_policy": "none", "inactive_threshold": 60_000_000_000},
    "wide": {"ack_policy": "none", "inactive_threshold": 60_000_000_000, "num_replicas": 3},
}


class Told:
    """The advisories of elections that one client has heard, by their subjects."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.heard: dict[str, list[dict[str, Any]]] = {}

    async def listen(self) -> None:
        """Hear everything from now on."""

        async def hear(message: Any) -> None:
            subject = message.subject.removeprefix(PREFIX)
            self.heard.setdefault(subject, []).append(json.loads(message.data))

        await self.client.subscribe(PREFIX + "*.LEADER_ELECTED.>", cb=hear)
        await self.client.flush()

    def shape(self, subject: str) -> dict[str, Any]:
        """What an advisory says, without what differs from run to run."""
        found = self.heard[subject][-1]
        assert found["leader"] in {"n0", "n1", "n2"}
        kept = {key: found.get(key) for key in ("type", "account", "stream", "consumer")}
        rows = found["replicas"]
        kept["names"] = sorted(row["name"] for row in rows)
        kept["of the leader"] = sorted(next(r for r in rows if r["name"] == found["leader"]))
        return {**kept, "fields": sorted(found)}


async def elections(address: str) -> dict[str, Any]:
    """The advisories of what is made, and of what another node leads after a step-down."""
    user = await connected(f"nats://a:a@{address}")
    system = await connected(f"nats://sys:sys@{address}")
    try:
        await until(lambda: led(user), "there is a leader")
        told, everywhere = Told(user), Told(system)
        await told.listen()
        await everywhere.listen()
        assert "error" not in await api(user, "STREAM.CREATE.S", name="S", **STREAM)
        for name, config in CONSUMERS.items():
            made = await api(
                user, f"CONSUMER.CREATE.S.{name}", stream_name="S", config={"name": name, **config}
            )
            assert "error" not in made, made
        wanted = {"STREAM.LEADER_ELECTED.S"} | {
            f"CONSUMER.LEADER_ELECTED.S.{name}" for name in ("durable", "wide")
        }
        await until(lambda: wanted <= told.heard.keys(), told.heard)
        found = {"made": {subject: told.shape(subject) for subject in sorted(told.heard)}}
        for request in ("STREAM.LEADER.STEPDOWN.S", "CONSUMER.LEADER.STEPDOWN.S.durable"):
            subject = f"{request.split('.')[0]}.LEADER_ELECTED.{request.split('STEPDOWN.')[1]}"
            before = len(told.heard[subject])
            old = told.heard[subject][-1]["leader"]
            await until(lambda r=request: stepped(user, r), f"{request} succeeds")
            await until(
                lambda s=subject, n=before: len(told.heard[s]) > n, f"{subject} is told again"
            )
            assert told.heard[subject][-1]["leader"] != old
            found[request] = told.shape(subject)
        await until(lambda: wanted <= everywhere.heard.keys(), everywhere.heard)
        found["system"] = {subject: everywhere.shape(subject) for subject in wanted}
        return found
    finally:
        await user.close()
        await system.close()


async def stepped(user: Client, request: str) -> bool:
    """Whether a leader gave way."""
    try:
        return bool((await api(user, request)).get("success"))
    except TimeoutError:
        return False


async def test_elections_are_told_alike(tmp_path: Path) -> None:
    async def told(nodes: Nodes) -> Any:
        return await asyncio.wait_for(elections(f"127.0.0.1:{nodes.port}"), 60)

    theirs, ours = await at_both(tmp_path, told)
    assert ours == theirs
