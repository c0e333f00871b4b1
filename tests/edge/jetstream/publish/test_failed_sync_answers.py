"""While syncs fail, what was stored gets its answer only when it is durable, whatever the kind of
answer, and what is refused is not stored."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import nats

STREAMS: list[dict[str, Any]] = [
    {"name": "PLAIN", "subjects": ["plain"]},
    {"name": "COUNTER", "subjects": ["counter"], "allow_msg_counter": True},
    {"name": "ATOMIC", "subjects": ["atomic"], "allow_atomic": True},
    {"name": "FAST", "subjects": ["fast"], "allow_batched": True},
]
BATCH = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"}


async def test_answers_wait_for_a_good_sync_and_refusals_mean_it(
    switch: Path, start_server: Callable[..., Any]
) -> None:
    client = await nats.connect(start_server().url)
    for config in STREAMS:
        body = json.dumps(config).encode()
        created = await client.request(f"$JS.API.STREAM.CREATE.{config['name']}", body)
        assert "error" not in json.loads(created.data)
    inbox = client.new_inbox()
    answers = await client.subscribe(f"{inbox}.>")
    switch.touch()
    await client.publish("plain", b"x", reply=f"{inbox}.plain")
    await client.publish("counter", reply=f"{inbox}.counter", headers={"Nats-Incr": "1"})
    await client.publish("atomic", b"x", reply=f"{inbox}.atomic", headers=BATCH)
    await client.publish("fast", b"x", reply=f"{inbox}.b.1.fail.1.2.$FI")
    sent, answer = 0, None
    while answer is None:
        sent += 1
        await client.publish("plain", b"more", reply=f"{inbox}.more")
        with suppress(nats.errors.TimeoutError):
            answer = json.loads((await answers.next_msg(0.1)).data)
    assert answer["error"]["err_code"] == 10077
    switch.unlink()
    found = [json.loads((await answers.next_msg(20)).data) for _ in range(sent + 3)]
    stored = [answer for answer in found if "error" not in answer]
    plain = [answer["seq"] for answer in stored if answer["stream"] == "PLAIN"]
    info = await client.request("$JS.API.STREAM.INFO.PLAIN")
    assert plain == list(range(1, json.loads(info.data)["state"]["last_seq"] + 1))
    assert {answer["stream"] for answer in stored} == {config["name"] for config in STREAMS}
    async with asyncio.timeout(20):
        while "error" in json.loads((await client.request("plain", b"x", timeout=5)).data):
            pass
    await client.close()
