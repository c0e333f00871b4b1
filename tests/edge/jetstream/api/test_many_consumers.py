"""What a request costs does not grow with how many consumers a stream has: their number is kept."""

import json
import time
from typing import Any

import nats

MANY = 6000
ASKED = 200
SLOWER = 6.0
"""How many times as long requests may take with many consumers as with few: listing all of them
each time would take some hundred times as long."""


async def made(nc: Any, first: int, count: int) -> None:
    """Ephemeral consumers, so many at a time as fit."""
    inbox = nc.new_inbox()
    answers = await nc.subscribe(inbox, pending_msgs_limit=-1)
    for at in range(first, first + count):
        config = {"name": f"c{at}", "mem_storage": True, "inactive_threshold": 600_000_000_000}
        body = json.dumps({"stream_name": "S", "config": config}).encode()
        await nc.publish(f"$JS.API.CONSUMER.CREATE.S.c{at}", body, reply=inbox)
    for _ in range(count):
        answer = await answers.next_msg(timeout=30)
        assert b'"error"' not in answer.data
    await answers.unsubscribe()


async def seconds(nc: Any) -> float:
    """What requests take that tell of a stream or an account, the shortest of some tries."""
    found = []
    for _ in range(5):
        began = time.perf_counter()
        for subject in ("INFO", "STREAM.INFO.S"):
            for _ in range(ASKED // 10):
                await nc.request(f"$JS.API.{subject}", b"", timeout=30)
        found.append(time.perf_counter() - began)
    return min(found)


async def test_requests_beside_many_consumers(headwater_url: str) -> None:
    nc = await nats.connect(headwater_url)
    await nc.request("$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s"]}', timeout=10)
    await made(nc, 0, 10)
    few = await seconds(nc)
    began = time.perf_counter()
    await made(nc, 10, MANY // 2)
    first = time.perf_counter() - began
    began = time.perf_counter()
    await made(nc, 10 + MANY // 2, MANY // 2)
    assert time.perf_counter() - began < SLOWER * first
    assert await seconds(nc) < SLOWER * few
    info = json.loads((await nc.request("$JS.API.STREAM.INFO.S", timeout=10)).data)
    assert info["state"]["consumer_count"] == MANY + 10
    page = await nc.request("$JS.API.CONSUMER.NAMES.S", b'{"offset": 6000}', timeout=10)
    names = sorted(f"c{at}" for at in range(MANY + 10))
    assert json.loads(page.data)["consumers"] == names[6000:]
    await nc.request("$JS.API.CONSUMER.DELETE.S.c9", b"", timeout=10)
    page = await nc.request("$JS.API.CONSUMER.NAMES.S", b'{"offset": 6000}', timeout=10)
    names.remove("c9")
    assert json.loads(page.data)["consumers"] == names[6000:]
    await nc.request("$JS.API.STREAM.DELETE.S", b"", timeout=30)
    await nc.close()
