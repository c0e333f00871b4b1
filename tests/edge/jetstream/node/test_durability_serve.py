"""The lines of docs/DURABILITY.md about the end of the process, at a real server: messages and
acknowledgements that were confirmed before it are there after it, whatever the durability."""

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
import pytest

from tests.edge.jetstream.conftest import JetStreamServer

SETTINGS: dict[str, dict[str, Any]] = {
    "fsync": {},
    "max_delay": {"metadata": {"headwater.max_delay": "20ms"}},
    "interval": {"metadata": {"headwater.sync_interval": "1h"}},
    "memory": {"storage": "memory"},
}
BATCH = 25
CHUNK = 100
CONSUMED = 10
LEAST = 100

Found = dict[str, tuple[dict[int, bytes], dict[str, Any], dict[str, Any]]]


async def api(nc: Any, subject: str, body: object = None) -> dict[str, Any]:
    data = b"" if body is None else json.dumps(body).encode()
    found = await nc.request(f"$JS.API.{subject}", data, timeout=20)
    answer: dict[str, Any] = json.loads(found.data)
    return answer


async def begin(nc: Any, name: str) -> None:
    """A stream, and a consumer that has confirmed acks of the first messages."""
    config = {"name": name, "subjects": [f"{name}.>"], **SETTINGS[name]}
    assert "error" not in await api(nc, f"STREAM.CREATE.{name}", config)
    body = {"stream_name": name, "config": {"durable_name": "d", "ack_policy": "explicit"}}
    assert "error" not in await api(nc, f"CONSUMER.CREATE.{name}.d", body)


async def consume(nc: Any, name: str) -> None:
    inbox = await nc.subscribe(f"in.{name}")
    await nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.d", b"%d" % CONSUMED, reply=f"in.{name}")
    for _ in range(CONSUMED):
        message = await inbox.next_msg(timeout=5)
        await nc.request(message.reply, b"+ACK", timeout=5)


async def publish(
    nc: Any, name: str, acked: dict[int, bytes], enough: asyncio.Event
) -> None:
    """Publish until cancelled; `enough` is set when LEAST were acknowledged."""
    number = 0

    async def one(data: bytes) -> None:
        answer = json.loads((await nc.request(f"{name}.x", data, timeout=20)).data)
        acked[answer["seq"]] = data

    while True:
        rows = [b"%s %d" % (name.encode(), number + n) for n in range(BATCH)]
        number += BATCH
        await asyncio.gather(*map(one, rows))
        if len(acked) >= LEAST:
            enough.set()


async def history(server: JetStreamServer, end: Callable[[], None]) -> dict[str, dict[int, bytes]]:
    """Publish to all streams, and consume, while the server ends; what was acknowledged."""
    nc = await nats.connect(server.url, allow_reconnect=False)
    # Its end says that all answers are read. The callback for a closed connection would not do:
    # if requests still wait to be sent, their failure ends the client before it calls back.
    reading = nc._reading_task
    assert reading is not None
    acked: dict[str, dict[int, bytes]] = {name: {} for name in SETTINGS}
    for name in SETTINGS:
        await begin(nc, name)
    enough = {name: asyncio.Event() for name in SETTINGS}
    work = [asyncio.create_task(publish(nc, name, acked[name], enough[name])) for name in SETTINGS]
    async with asyncio.timeout(20):
        await asyncio.gather(*(each.wait() for each in enough.values()))
        await asyncio.gather(*(consume(nc, name) for name in SETTINGS))
    await asyncio.to_thread(end)
    await asyncio.wait_for(asyncio.wait([reading]), 20)
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    await nc.close()
    return acked


async def look(server: JetStreamServer, acked: dict[str, dict[int, bytes]]) -> Found:
    """Per stream: the acknowledged messages that are there, what STREAM.INFO says, and
    CONSUMER.INFO."""
    nc = await nats.connect(server.url)
    found: Found = {}
    for name, rows in acked.items():
        there = {}
        wanted = sorted(rows)
        for at in range(0, len(wanted), CHUNK):
            part = wanted[at : at + CHUNK]
            get = f"STREAM.MSG.GET.{name}"
            answers = await asyncio.gather(*(api(nc, get, {"seq": number}) for number in part))
            for number, answer in zip(part, answers, strict=True):
                if "message" in answer:
                    there[number] = base64.b64decode(answer["message"]["data"])
        info = await api(nc, f"STREAM.INFO.{name}")
        found[name] = (there, info, await api(nc, f"CONSUMER.INFO.{name}.d"))
    await nc.close()
    return found


def ended(folder: Path, how: str) -> tuple[dict[str, dict[int, bytes]], Found]:
    """What was acknowledged, and what a second life of the server knows of it."""
    server = JetStreamServer("headwater", folder)
    acked = asyncio.run(history(server, server.kill if how == "kill" else server.stop))
    server = JetStreamServer("headwater", folder)
    try:
        return acked, asyncio.run(look(server, acked))
    finally:
        server.kill()


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return ended(tmp_path_factory.mktemp("killed"), "kill")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return ended(tmp_path_factory.mktemp("stopped"), "stop")


def check(setting: str, both: Any) -> None:
    acked = both[0][setting]
    there, info, consumer = both[1][setting]
    assert len(acked) >= LEAST
    if setting == "memory":
        assert info["error"]["err_code"] == 10059, "the stream is gone with the process"
        return
    assert there == acked
    state = info["state"]
    assert "lost" not in state
    assert state["last_seq"] == state["messages"] >= max(acked)
    assert consumer["ack_floor"]["stream_seq"] >= CONSUMED
    assert consumer["num_ack_pending"] == 0


@pytest.mark.parametrize("setting", SETTINGS)
def test_kill(setting: str, killed: Any) -> None:
    check(setting, killed)


@pytest.mark.parametrize("setting", SETTINGS)
def test_clean_stop(setting: str, stopped: Any) -> None:
    check(setting, stopped)
