"""A mirror takes its origin's place: an update without `mirror` makes it an ordinary stream."""

import json
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from bench.servers import Server, anchor, headwater
from tests.waiting import until


async def api(client: Client, request: str, **body: Any) -> dict[str, Any]:
    payload = json.dumps(body).encode() if body else b""
    answer = await client.request(f"$JS.API.{request}", payload, timeout=5)
    found: dict[str, Any] = json.loads(answer.data)
    return found


def told(answer: dict[str, Any]) -> Any:
    """The error, or what both servers must agree on."""
    if "error" in answer:
        return answer["error"]
    state = {name: answer["state"][name] for name in ("messages", "first_seq", "last_seq")}
    config = {name: answer["config"].get(name) for name in ("subjects", "mirror", "sources")}
    return {**state, **config}


async def promoted(client: Client, storage: str) -> list[Any]:
    """The answers on the way of a mirror to an ordinary stream."""
    js = client.jetstream()
    await api(client, "STREAM.CREATE.O", name="O", subjects=["o.>"], storage=storage)
    for number in range(5):
        await js.publish("o.a", b"%d" % number)
    await api(client, "STREAM.CREATE.M", name="M", mirror={"name": "O"}, storage=storage)

    async def whole() -> bool:
        state = (await api(client, "STREAM.INFO.M"))["state"]
        return bool(state["messages"] == 5)

    await until(whole)

    async def update(**fields: Any) -> Any:
        return told(await api(client, "STREAM.UPDATE.M", name="M", storage=storage, **fields))

    seen = [await update(subjects=["o.>"]), await update(subjects=["m.>"])]
    seen.append((await js.publish("m.x", b"new")).seq)
    seen.append(await update(mirror={"name": "O"}))
    await js.publish("o.a", b"late")
    await api(client, "STREAM.DELETE.O")
    seen.append(await update(subjects=["o.>", "m.>"]))
    seen.append((await js.publish("o.a", b"taken over")).seq)
    seen.append(told(await api(client, "STREAM.INFO.M")))
    for sequence in range(1, 8):
        seen.append((await js.get_msg("M", sequence)).data)
    return seen


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_a_mirror_is_promoted_as_with_the_real_server(storage: str) -> None:
    answers = []
    for recipe in (headwater(), anchor()):
        with Server(recipe) as server:
            client = await nats.connect(f"nats://127.0.0.1:{server.port}")
            try:
                answers.append(await promoted(client, storage))
            finally:
                await client.close()
    assert answers[0] == answers[1]
    assert answers[0][-3:] == [b"4", b"new", b"taken over"]
