"""Direct gets that mirrors answer in the place of their origins, beside three nats-servers."""

import asyncio
import contextlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.js.errors import NoStreamResponseError

from tests.hub.api.beside import Nodes, at_both, led, ours, their_nodes
from tests.slow import slow
from tests.waiting import connected, until

MESSAGES = 30


async def ask(user: Client, request: str, body: Any = None) -> dict[str, Any]:
    """A request of the API, and its answer."""
    data = b"" if body is None else json.dumps(body).encode()
    answer: dict[str, Any] = json.loads((await user.request(f"$JS.API.{request}", data, 5)).data)
    return answer


async def get(user: Client, subject: str, body: bytes = b"") -> list[str]:
    """What a direct get gives: the stream that answers, sequence and payload, or the status."""
    try:
        answer = await user.request(f"$JS.API.DIRECT.GET.{subject}", body, 3)
    except (nats.errors.NoRespondersError, nats.errors.TimeoutError) as error:
        return [type(error).__name__]
    headers = answer.headers or {}
    if "Status" in headers:
        return [headers["Status"]]
    return [headers["Nats-Stream"], headers["Nats-Sequence"], answer.data.decode()]


async def stored(user: Client, subject: str, payload: bytes) -> bool:
    """Publish a message; False where nats-server's nodes do not know the new stream yet."""
    try:
        return bool(await user.jetstream().publish(subject, payload))
    except NoStreamResponseError:
        return False


async def caught_up(user: Client, mirror: str) -> bool:
    """Whether a mirror has all."""
    info = await ask(user, f"STREAM.INFO.{mirror}")
    return bool(info.get("state", {}).get("messages") == MESSAGES)


async def answers_of(user: Client, stream: str) -> bool:
    """Whether somebody answers a direct get of a stream that is gone."""
    return len(await get(user, f"{stream}.{stream.lower()}.1")) == 3


async def story(port: int) -> list[Any]:
    """What both servers must agree on."""
    seen: list[Any] = []
    async with await connected(f"nats://a:a@127.0.0.1:{port}") as user:
        await until(partial(led, user), "a leader")
        for name, allowed in (("O", True), ("Q", False)):
            await ask(
                user,
                f"STREAM.CREATE.{name}",
                {
                    "name": name,
                    "subjects": [f"{name.lower()}.>"],
                    "num_replicas": 3,
                    "allow_direct": allowed,
                },
            )
            for number in range(MESSAGES):
                subject = f"{name.lower()}.{number}"
                await until(partial(stored, user, subject, b"%d" % number), "it is stored")
            mirror = f"M{name}"
            made = await ask(
                user,
                f"STREAM.CREATE.{mirror}",
                {"name": mirror, "num_replicas": 3, "mirror": {"name": name}},
            )
            seen.append((mirror, made["config"].get("mirror_direct", False)))
            await until(partial(caught_up, user, mirror), mirror)
            # What the mirror is told next shows it that it is near.
            await user.jetstream().publish(f"{name.lower()}.0", b"again")
        gets = [await get(user, "O.o.3") for _ in range(8)]
        seen += sorted({tuple(each[1:]) for each in gets})
        for name in "OQ":
            await ask(user, f"STREAM.DELETE.{name}")
        await until(partial(answers_of, user, "O"), "the mirror")
        seen += [
            await get(user, "O.o.3"),
            await get(user, "O", b'{"seq":5}'),
            await get(user, "O.o.99"),
            await get(user, "MO.o.3"),
            await get(user, "Q.q.3"),
        ]
    return seen


async def test_a_mirror_answers_in_the_place_of_its_origin(tmp_path: Path) -> None:
    async def told(nodes: Nodes) -> Any:
        return await story(nodes.port)

    found = await at_both(tmp_path, told)
    assert found[0] == found[1]
    assert found[1][3:5] == [["MO", "4", "3"], ["MO", "5", "4"]]


async def held(user: Client, stream: str) -> int:
    """Messages of a stream."""
    return int((await ask(user, f"STREAM.INFO.{stream}"))["state"]["messages"])


async def test_a_mirror_that_is_behind_leaves_gets_to_its_origin(tmp_path: Path) -> None:
    """It lacks nearly all, since it lets its origin send one message a second, and has what is
    asked for."""
    async with (
        ours(tmp_path / "nodes") as port,
        await connected(f"nats://a:a@127.0.0.1:{port}") as user,
    ):
        await until(partial(led, user), "a leader")
        config = {"name": "O", "subjects": ["o.>"], "allow_direct": True}
        await ask(user, "STREAM.CREATE.O", config)
        bodies = (user.jetstream().publish(f"o.{number}", bytes(1000)) for number in range(500))
        await asyncio.gather(*bodies)
        slowly = {"metadata": {"headwater.link_rate": "1000"}}
        await ask(user, "STREAM.CREATE.MO", {"name": "MO", "mirror": {"name": "O"}, **slowly})

        async def has_some() -> bool:
            return await held(user, "MO") >= 2

        await until(has_some, "the mirror begins")
        assert {(await get(user, "O.o.1"))[0] for _ in range(20)} == {"O"}
        await ask(user, "STREAM.DELETE.O")
        assert await get(user, "O.o.1") == ["NoRespondersError"]
        assert await held(user, "MO") < 400


async def led_by(user: Client, stream: str, name: str) -> bool:
    """Ask for another leader; whether a node leads a stream."""
    body = {"placement": {"preferred": name}}
    # A nats-server whose stream nobody leads does not answer.
    with contextlib.suppress(nats.errors.Error):
        info = await ask(user, f"STREAM.INFO.{stream}")
        if info.get("cluster", {}).get("leader") == name:
            return True
        await ask(user, f"STREAM.LEADER.STEPDOWN.{stream}", body)
    return False


async def answered_by_replicas(user: Client, percent: int) -> bool:
    """Whether so many gets of the origin are answered by the mirror."""
    answers = [(await get(user, "O.o.3"))[0] for _ in range(100)]
    return answers.count("MO") >= percent


async def replicas_story(port: int, percent: int) -> list[Any]:
    """A client of a node that has a replica of a mirror, and nothing of its origin."""
    seen: list[Any] = []
    async with await connected(f"nats://a:a@127.0.0.1:{port}") as user:
        await until(partial(led, user), "a leader")
        origin = {"name": "O", "subjects": ["o.>"], "allow_direct": True}
        await ask(user, "STREAM.CREATE.O", {**origin, "placement": {"tags": ["az:1"]}})
        for number in range(MESSAGES):
            await until(partial(stored, user, f"o.{number}", b"%d" % number), "it is stored")
        mirror = {"name": "MO", "num_replicas": 3, "mirror": {"name": "O"}}
        await ask(user, "STREAM.CREATE.MO", mirror)
        await until(partial(caught_up, user, "MO"), "MO")
        for leader in ("n2", "n1", "n2"):
            await until(partial(led_by, user, "MO", leader), leader)
            await until(partial(answered_by_replicas, user, percent), f"replicas, led by {leader}")
            seen.append(leader)
        await ask(user, "STREAM.DELETE.O")
        # A get may still go where the origin was.
        await until(partial(answers_of, user, "O"), "the mirror alone")
    return seen


@slow
async def test_replicas_of_a_mirror_answer_in_the_place_of_its_origin(tmp_path: Path) -> None:
    """Of a nats-server's four that answer any one does, and here the client's own node."""
    seen = ["n2", "n1", "n2"]
    async with ours(tmp_path / "ours") as port:
        assert await replicas_story(port, 100) == seen
    async with their_nodes(tmp_path / "theirs") as nodes:
        assert await replicas_story(nodes.port, 70) == seen
