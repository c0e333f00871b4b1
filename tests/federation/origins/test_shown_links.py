"""What INFO tells of mirrors and sources besides what NATS knows, and what strict clients see."""

import json
from typing import Any

import pytest
from nats.aio.client import Client

from bench.servers import HOST, Server, anchor, headwater
from headwater.edge.jetstream.config.stream_config import LINKS_MAX
from tests.waiting import connected, until

OWN = "_headwater."
MANY = LINKS_MAX + 20


async def api(client: Client, request: str, **body: Any) -> Any:
    """One request of the API."""
    answer = await client.request(f"$JS.API.{request}", json.dumps(body).encode(), timeout=10)
    return json.loads(answer.data)


async def copies(port: int) -> dict[str, Any]:
    """INFO of a mirror and of a stream with two sources, once they have what their origins have."""
    client = await connected(f"nats://{HOST}:{port}")
    try:
        for name in ("A", "B"):
            await api(client, f"STREAM.CREATE.{name}", name=name, subjects=[name])
            await client.jetstream().publish(name, b"x")
        await api(client, "STREAM.CREATE.M", name="M", mirror={"name": "A"})
        await api(client, "STREAM.CREATE.S", name="S", sources=[{"name": "A"}, {"name": "B"}])
        found = {}
        for name, count in (("M", 1), ("S", 2)):

            async def all_there(name: str = name, count: int = count) -> Any:
                info = await api(client, f"STREAM.INFO.{name}")
                return info if info["state"]["messages"] == count else None

            found[name] = await until(all_there, f"the messages of {name}")
        return found
    finally:
        await client.close()


def fields(value: Any) -> Any:
    """The names of all fields, but those of metadata."""
    if isinstance(value, list):
        return [fields(each) for each in value]
    if not isinstance(value, dict):
        return None
    return {key: fields(one) if key != "metadata" else None for key, one in value.items()}


async def test_there_are_no_fields_that_schemas_do_not_know() -> None:
    """nats-py's new JetStream client refuses them, when it is asked to be strict."""
    shown = []
    for recipe in (headwater(), anchor()):
        with Server(recipe) as server:
            shown.append(await copies(server.port))
    ours, theirs = shown
    assert fields(ours) == fields(theirs)
    links = {
        key: json.loads(value)["state"]
        for info in ours.values()
        for key, value in info["config"]["metadata"].items()
        if key.startswith(OWN)
    }
    assert links == {f"{OWN}{at}": "live" for at in ("mirror", "sources.0", "sources.1")}


@pytest.mark.parametrize("request_of", ["STREAM.UPDATE.S", "STREAM.CREATE.S"])
async def test_an_answer_s_configuration_can_be_sent_back(request_of: str) -> None:
    """However many sources it has; what answers alone have is not kept."""
    with Server(headwater()) as server:
        client = await connected(f"nats://{HOST}:{server.port}")
        names = [f"O{n}" for n in range(MANY)]
        for name in names:
            await api(client, f"STREAM.CREATE.{name}", name=name, subjects=[name])
        sources = [{"name": name} for name in names]
        await api(client, "STREAM.CREATE.S", name="S", sources=sources)
        config = (await api(client, "STREAM.INFO.S"))["config"]
        assert sum(key.startswith(OWN) for key in config["metadata"]) == LINKS_MAX
        changed = {**config, "sources": sources[:1]} if "UPDATE" in request_of else config
        answer = await api(client, request_of, **changed)
        assert "error" not in answer, answer
        shown = {key for key in answer["config"]["metadata"] if key.startswith(OWN)}
        assert len(shown) == (1 if "UPDATE" in request_of else 0)
        await client.close()


async def test_a_new_mirror_says_why_nobody_answers_yet() -> None:
    """From its first moment on: an operator who sees `offline` sees a cause beside it."""
    with Server(headwater()) as server:
        client = await connected(f"nats://{HOST}:{server.port}")
        far = {"name": "A", "external": {"api": "$JS.nowhere.API"}}
        await api(client, "STREAM.CREATE.M", name="M", mirror=far)
        info = await api(client, "STREAM.INFO.M")
        shown = json.loads(info["config"]["metadata"][f"{OWN}mirror"])
        assert shown["state"] == "offline"
        assert shown["cause"]
        await client.close()
