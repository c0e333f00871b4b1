"""A replicated stream from its first message to its end, beside three nats-servers."""

import asyncio
import gc
import json
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from tests.hub.api.beside import Nodes, at_both, led
from tests.hub.lab import api
from tests.waiting import connected, until

PREFIX = "$JS.EVENT.ADVISORY."
STREAM: dict[str, Any] = {"name": "S", "subjects": ["s.>"], "num_replicas": 3}
DONE = ["STREAM.CREATED.S", "STREAM.UPDATED.S", "STREAM.UPDATED.S", "STREAM.DELETED.S"]


async def publish(client: Client, **headers: str) -> dict[str, Any]:
    """A message with headers, `_` for `-`; what the stream answers."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await client.request("s.a", b"x", timeout=5, headers=named)
    found: dict[str, Any] = json.loads(answer.data)
    return found


async def retries(client: Client) -> list[dict[str, Any]]:
    """A message that expects a sequence is sent again, as after a lost answer."""
    first = {"Nats_Msg_Id": "1", "Nats_Expected_Last_Sequence": "0"}
    of_subject = {"Nats_Msg_Id": "2", "Nats_Expected_Last_Subject_Sequence": "1"}
    tries = [first, first, of_subject, of_subject, {**first, "Nats_Msg_Id": "3"}]
    return [await publish(client, **each) for each in tries]


async def life(address: str) -> dict[str, Any]:
    """What a client hears of a stream that is made, changed twice and deleted."""
    user = await connected(f"nats://a:a@{address}")
    try:
        await until(lambda: led(user), "there is a leader")
        heard: list[str] = []

        async def hear(message: Any) -> None:
            heard.append(message.subject.removeprefix(PREFIX))

        for what in ("STREAM.CREATED", "STREAM.UPDATED", "CONSUMER.DELETED", "STREAM.DELETED"):
            await user.subscribe(f"{PREFIX}{what}.S", cb=hear)
            await user.subscribe(f"{PREFIX}{what}.S.c", cb=hear)
        await user.flush()
        assert "error" not in await api(user, "STREAM.CREATE.S", **STREAM)
        for _ in range(2):
            assert "error" not in await api(user, "STREAM.UPDATE.S", **STREAM, description="x")
        made = await api(
            user,
            "CONSUMER.CREATE.S.c",
            stream_name="S",
            config={"name": "c", "durable_name": "c", "ack_policy": "explicit"},
        )
        assert "error" not in made
        found: dict[str, Any] = {"retries": await retries(user)}
        page = await api(user, "STREAM.NAMES", offset=5)
        found["behind the last name"] = {key: page[key] for key in ("total", "streams")}
        waiting = await user.subscribe("_INBOX.pull")
        body = json.dumps({"batch": 1, "expires": 20_000_000_000}).encode()
        for _ in range(2):
            await user.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", body, "_INBOX.pull")
            await waiting.next_msg(5)
        await user.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", body, "_INBOX.pull")
        await until(lambda: pulls(user), "the pull waits")
        assert (await api(user, "STREAM.DELETE.S"))["success"]
        end = (await waiting.next_msg(5)).headers or {}
        found["pull"] = {name: end.get(name) for name in ("Status", "Description")}
        await until(lambda: DONE[-1] in heard, heard)
        return {**found, "advisories": heard}
    finally:
        await user.close()


async def pulls(client: Client) -> bool:
    """Whether a pull request waits for messages."""
    return bool((await api(client, "CONSUMER.INFO.S.c"))["num_waiting"] == 1)


async def updates(nodes: Nodes) -> list[str]:
    """The advisories of a stream of one node that is updated without a change."""
    user = await connected(f"nats://a:a@127.0.0.1:{nodes.port}")
    try:
        await until(lambda: led(user), "there is a leader")
        heard: list[str] = []

        async def hear(message: Any) -> None:
            heard.append(message.subject.removeprefix(PREFIX))

        await user.subscribe(f"{PREFIX}STREAM.*.S", cb=hear)
        await user.flush()
        one = {"name": "S", "subjects": ["s.>"], "description": "x"}
        for request in ("CREATE", "CREATE", "UPDATE", "UPDATE"):
            assert "error" not in await api(user, f"STREAM.{request}.S", **one)
        assert (await api(user, "STREAM.DELETE.S"))["success"]
        await until(lambda: heard[-1:] == ["STREAM.DELETED.S"], heard)
        return heard
    finally:
        await user.close()


async def test_an_update_without_a_change_is_told_alike(tmp_path: Path) -> None:
    theirs, ours = await at_both(tmp_path, updates)
    assert ours == theirs
    assert ours == ["STREAM.CREATED.S", *["STREAM.UPDATED.S"] * 2, "STREAM.DELETED.S"]


async def test_a_stream_is_made_changed_and_deleted_alike(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A retry is answered as the first try was, whatever it expects; a waiting pull hears that its
    consumer is gone, and not that another node leads. That a consumer with replicas goes with its
    stream is not told, or by nats-server now and then."""

    async def told(nodes: Nodes) -> Any:
        return await asyncio.wait_for(life(f"127.0.0.1:{nodes.port}"), 60)

    theirs, ours = await at_both(tmp_path, told)
    assert ours["advisories"] == DONE
    theirs["advisories"] = [each for each in theirs["advisories"] if each in DONE]
    assert ours == theirs
    gc.collect()
    assert "never retrieved" not in caplog.text
