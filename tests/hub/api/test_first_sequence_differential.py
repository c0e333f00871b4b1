"""Where a stream begins, beside three nats-servers."""

from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError, TimeoutError

from tests.hub.api.beside import Nodes, at_both, led, masked
from tests.hub.lab import api
from tests.waiting import connected, until

SEEN = ("messages", "first_seq", "last_seq", "num_deleted")


async def state(user: Client, name: str) -> list[Any]:
    """What a stream has."""
    found = (await api(user, f"STREAM.INFO.{name}"))["state"]
    return [found.get(key) for key in SEEN]


async def begin(user: Client, first: int, replicas: int, storage: str) -> list[Any]:
    """A stream from its creation to its second leader."""
    name = f"S{first}"
    config = {
        "name": name,
        "subjects": [f"{name}.>"],
        "first_seq": first,
        "num_replicas": replicas,
        "storage": storage,
    }
    made = await api(user, f"STREAM.CREATE.{name}", **config)
    found = [[made["state"].get(key) for key in SEEN], await state(user, name)]
    if replicas > 1:
        assert "error" not in await api(user, f"STREAM.LEADER.STEPDOWN.{name}")

    async def stored() -> bool:
        # nats-server has nobody who takes a message until its next leader does.
        try:
            answer = await user.request(f"{name}.a", b"x", timeout=5)
        except (NoRespondersError, TimeoutError):
            return False
        found.append(masked(answer.data.decode()))
        return b'"seq"' in answer.data

    await until(stored, "another leader takes a message")
    found[2:] = found[-1:]
    return [*found, await state(user, name)]


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_a_stream_begins_where_it_is_asked_to(
    tmp_path: Path, replicas: int, storage: str
) -> None:
    async def work(nodes: Nodes) -> list[Any]:
        user = await connected(f"nats://a:a@127.0.0.1:{nodes.port}")
        try:
            await until(lambda: led(user), "there is a leader")
            return [await begin(user, first, replicas, storage) for first in (0, 1, 50)]
        finally:
            await user.close()

    theirs, ours = await at_both(tmp_path, work)
    assert ours == theirs
    assert [each[0][1] for each in ours] == [0, 1, 50]
