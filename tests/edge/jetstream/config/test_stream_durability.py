"""Durability as a stream's configuration asks for it, seen at a running server: acks of `interval`
need no sync, those of `max_delay` wait for one, and what makes no sense is refused."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import nats
import pytest

MODE = "headwater.durability"
INTERVAL = "headwater.sync_interval"
DELAY = "headwater.max_delay"
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"metadata": {MODE: "sometimes"}}, f"{MODE} must be fsync or interval"),
    ({"metadata": {MODE: "memory"}}, f"{MODE} must be fsync or interval"),
    ({"metadata": {INTERVAL: "soon"}}, f"{INTERVAL} must be a duration like 250ms"),
    ({"metadata": {INTERVAL: "2h"}}, f"{INTERVAL} must be 1ms to 1h0m0s"),
    ({"metadata": {DELAY: "-1s"}}, f"{DELAY} must be 0s to 1s"),
    ({"metadata": {DELAY: "1s", INTERVAL: "1s"}}, "exclude each other"),
    ({"metadata": {MODE: "fsync", INTERVAL: "1s"}}, f"{INTERVAL} requires {MODE} interval"),
    ({"metadata": {MODE: "interval", DELAY: "1s"}}, f"{DELAY} requires {MODE} fsync"),
    ({"metadata": {MODE: "fsync"}, "persist_mode": "async"}, "contradicts async persist mode"),
    ({"metadata": {DELAY: "1s"}, "persist_mode": "async"}, f"{DELAY} requires {MODE} fsync"),
    ({"metadata": {MODE: "fsync"}, "storage": "memory"}, "only supported on file storage"),
    ({"persist_mode": "async", "allow_atomic": True}, "not supported with atomic batch publish"),
]


async def api(nc: Any, subject: str, body: object = None) -> dict[str, Any]:
    data = b"" if body is None else json.dumps(body).encode()
    answer: dict[str, Any] = json.loads((await nc.request(f"$JS.API.{subject}", data)).data)
    return answer


def stream(name: str, **config: Any) -> dict[str, Any]:
    return {"name": name, "subjects": [f"{name}.>"], **config}


async def created(nc: Any, name: str, **config: Any) -> dict[str, Any]:
    answer = await api(nc, f"STREAM.CREATE.{name}", stream(name, **config))
    assert "error" not in answer, answer
    return answer


async def published(nc: Any, name: str) -> bool:
    """Whether a message is acknowledged. A stream's first ack says that its sequences are reserved,
    which takes a sync."""
    answer = json.loads((await nc.request(f"{name}.x", b"m", timeout=5)).data)
    return "error" not in answer


async def held_back(nc: Any, name: str) -> bool:
    """Whether messages are not acknowledged until, once the node knows of the failure, one of them
    is refused."""
    inbox = nc.new_inbox()
    answers = await nc.subscribe(f"{inbox}.*")
    for n in range(100):
        await nc.publish(f"{name}.x", b"m", reply=f"{inbox}.{n}")
        with suppress(nats.errors.TimeoutError):
            return "error" in json.loads((await answers.next_msg(0.1)).data)
    return False


async def test_interval_acks_need_no_sync(
    switch: Path, start_server: Callable[..., Any]
) -> None:
    server = start_server()
    nc = await nats.connect(server.url)
    await created(nc, "ASYNC", persist_mode="async")
    found = await created(nc, "META", metadata={MODE: "interval", INTERVAL: "1h"})
    assert found["config"]["metadata"][MODE] == "interval"
    await created(nc, "LAZY", metadata={INTERVAL: "30m"})
    await created(nc, "DEFAULT")
    await created(nc, "GATHERED", metadata={DELAY: "50ms"})
    await nc.close()
    server.kill()
    server = start_server()
    nc = await nats.connect(server.url)
    found = await api(nc, "STREAM.INFO.META")
    assert found["config"]["metadata"][INTERVAL] == "1h"
    for name in ("ASYNC", "META", "LAZY"):
        assert await published(nc, name), name
    switch.touch()
    for name in ("ASYNC", "META", "LAZY"):
        assert await published(nc, name), name
    answer = await api(nc, "STREAM.MSG.DELETE.META", {"seq": 1, "no_erase": True})
    assert answer["success"]
    assert (await api(nc, "STREAM.PURGE.LAZY"))["success"]
    assert await held_back(nc, "GATHERED")
    assert await held_back(nc, "DEFAULT")
    await nc.close()


@pytest.mark.alone
async def test_max_delay_gathers_and_an_update_changes_it(start_server: Callable[..., Any]) -> None:
    nc = await nats.connect(start_server().url)
    await created(nc, "G", metadata={DELAY: "400ms"})

    async def seconds() -> float:
        began = time.monotonic()
        assert await published(nc, "G")
        return time.monotonic() - began

    await seconds()
    # A batch stays open for nine tenths of the delay.
    assert await seconds() > 0.35
    changed = stream("G", metadata={DELAY: "0s"})
    assert "error" not in await api(nc, "STREAM.UPDATE.G", changed)
    assert min([await seconds() for _ in range(5)]) < 0.35
    await nc.close()


async def test_an_update_to_fsync_counts_at_once(
    switch: Path, start_server: Callable[..., Any]
) -> None:
    nc = await nats.connect(start_server().url)
    await created(nc, "U", metadata={MODE: "interval"})
    answer = await api(nc, "STREAM.UPDATE.U", stream("U", metadata={MODE: "fsync"}))
    assert answer["config"]["metadata"][MODE] == "fsync"
    answer = await api(nc, "STREAM.UPDATE.U", stream("U", metadata={MODE: "often"}))
    assert answer["error"]["err_code"] == 10052
    switch.touch()
    assert await held_back(nc, "U")
    await nc.close()


async def test_consumers_of_an_interval_stream_need_no_sync(
    switch: Path, start_server: Callable[..., Any]
) -> None:
    nc = await nats.connect(start_server().url)
    await created(nc, "C", persist_mode="async")
    body = {"stream_name": "C", "config": {"durable_name": "d", "ack_policy": "explicit"}}
    assert await published(nc, "C")
    await api(nc, "CONSUMER.CREATE.C.d", body)
    switch.touch()
    assert await published(nc, "C")
    inbox = await nc.subscribe("inbox")
    await nc.publish("$JS.API.CONSUMER.MSG.NEXT.C.d", b"1", reply="inbox")
    message = await inbox.next_msg(timeout=5)
    assert message.data == b"m"
    assert (await nc.request(message.reply, b"+ACK", timeout=5)).data == b""
    await nc.close()


@pytest.mark.parametrize(("config", "text"), REFUSED)
async def test_refused(headwater_url: str, config: dict[str, Any], text: str) -> None:
    nc = await nats.connect(headwater_url)
    answer = await api(nc, "STREAM.CREATE.R", stream("R", **config))
    assert answer["error"]["err_code"] == 10052
    assert text in answer["error"]["description"]
    await nc.close()


async def test_the_nodes_setting_is_the_default(
    switch: Path, start_server: Callable[..., Any], tmp_path: Path
) -> None:
    config = tmp_path / "node.conf"
    config.write_text("jetstream { sync_interval: 1h }")
    nc = await nats.connect(start_server("-c", str(config)).url)
    await created(nc, "D")
    await created(nc, "F", metadata={MODE: "fsync"})
    assert await published(nc, "D")
    switch.touch()
    assert await published(nc, "D")
    assert await held_back(nc, "F")
    await nc.close()
