"""While syncs fail, no publish is answered as if it were durable, whatever the kind of answer."""

import asyncio
import json
from collections.abc import Callable
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


async def test_no_answer_promises_what_is_not_durable(
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
    found = [json.loads((await answers.next_msg(10)).data) for _ in range(4)]
    assert all("error" in answer for answer in found), found
    switch.unlink()
    async with asyncio.timeout(20):
        while "error" in json.loads((await client.request("plain", b"x", timeout=5)).data):
            pass
    await client.close()
