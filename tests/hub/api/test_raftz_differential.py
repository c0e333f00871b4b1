"""/raftz and the groups in /jsz, beside three nats-servers."""

import asyncio
import re
from pathlib import Path
from typing import Any

from tests.hub.api.beside import Nodes, at_both, led
from tests.hub.api.test_health_differential import get
from tests.hub.lab import api
from tests.waiting import connected, until

PATHS = [
    "raftz",
    "raftz?acc=A",
    "raftz?acc=A&group=_meta_",
    "raftz?acc=$SYS&group=_meta_",
    "raftz?group=_meta_",
    "raftz?group=none",
    "raftz?acc=none",
    "raftz?acc=B",
    "jsz?acc=A&streams=1&raft=1",
    "jsz?acc=A&streams=1&consumers=1&raft=1",
]
CHANCE = (
    "leader_since", "last_replicated_index", "last_seen", "lag", "offline", "default_max_consumers",
    "consumers_leader", "streams_leader",
)


def shape(found: Any) -> Any:
    """Kinds of values; names of groups and peers without what is drawn.

    Left out are groups of consumers, which have none of their own here, and what depends on whether
    a node leads by chance.
    """
    if isinstance(found, dict):
        kinds = {
            re.sub(r"^(S-R\dF).*", r"\1", key): shape(found[key])
            for key in found
            if key not in CHANCE and not key.startswith("C-R")
        }
        peers = all(isinstance(found[key], dict) and "known" in found[key] for key in found)
        return next(iter(kinds.values())) if kinds and peers else dict(sorted(kinds.items()))
    if isinstance(found, list):
        return [shape(item) for item in found]
    return type(found).__name__


async def pages(address: str, monitors: list[int]) -> dict[str, Any]:
    """Status and shape of each page of the node that leads a stream of three replicas."""
    user = await connected(f"nats://a:a@{address}")
    try:
        await until(lambda: led(user), "there is a leader")
        made = await api(user, "STREAM.CREATE.S", name="S", subjects=["s"], num_replicas=3)
        config = {"durable_name": "c", "ack_policy": "explicit"}
        assert "error" not in await api(
            user, "CONSUMER.CREATE.S.c", stream_name="S", config=config
        )
        await user.jetstream().publish("s", b"x")
        monitor = monitors[int(made["cluster"]["leader"][1:])]
        found = {path: await asyncio.to_thread(get, monitor, path) for path in PATHS}
    finally:
        await user.close()
    return {path: (status, shape(answer)) for path, (status, answer) in found.items()}


async def test_groups_are_shown_alike(tmp_path: Path) -> None:
    async def shown(nodes: Nodes) -> dict[str, Any]:
        return await pages(f"127.0.0.1:{nodes.port}", nodes.monitors)

    theirs, ours = await at_both(tmp_path, shown, monitoring=True)
    for path in PATHS:
        assert ours[path] == theirs[path], path
