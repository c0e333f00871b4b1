"""A running server whose machine's clock is set, and which is killed between."""

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import ConsumerConfig, StreamConfig
from nats.js.errors import NotFoundError

from bench.faults.set_clock import SetClock
from tests.waiting import until, until_state

YEAR = 365 * 24 * 3600


@pytest.fixture(params=["wall clock", "every clock"])
def clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> SetClock:
    made = SetClock(tmp_path, request.param == "every clock")
    for name, value in made.environment:
        monkeypatch.setenv(name, value)
    return made


async def times(js: Any, wanted: int) -> list[float]:
    """Of the messages that are there."""
    found = []
    for sequence in range(1, wanted + 1):
        try:
            message = await js.get_msg("S", sequence)
        except NotFoundError:
            continue
        found.append(message.time.timestamp())
    return found


async def test_ages_of_a_server_whose_clock_is_set(
    clock: SetClock, start_server: Callable[..., Any]
) -> None:
    clock.set(-int(time.time()) + 100)
    server = start_server()
    client = await nats.connect(server.url)
    js = client.jetstream()
    await js.add_stream(
        StreamConfig(name="S", subjects=["s"], max_age=3600, duplicate_window=120)
    )
    await js.publish("s", b"1", headers={"Nats-Msg-Id": "one"})
    steps = [0, 10 * YEAR, 0, -30 * YEAR, 0]
    for number, offset in enumerate(steps):
        if number % 2:
            server.kill()
            await client.close()
        clock.set(offset)
        if number % 2:
            server = start_server()
            client = await nats.connect(server.url)
            js = client.jetstream()
        again = await js.publish("s", b"again", headers={"Nats-Msg-Id": "one"})
        assert again.duplicate
        assert again.seq == 1
        await js.publish("s", b"x")
    found = await times(js, len(steps) + 1)
    assert len(found) == len(steps) + 1
    assert found == sorted(found)
    await js.purge_stream("S")
    await js.update_stream(StreamConfig(name="S", subjects=["s"], max_age=1, duplicate_window=1))
    await js.publish("s", b"short")
    clock.set(-20 * YEAR)
    await until_state(js, "S", lambda state: not state.messages, "it is too old")
    await client.close()


async def test_consumers_go_on_while_the_clock_is_set(
    clock: SetClock, start_server: Callable[..., Any]
) -> None:
    server = start_server()
    client = await nats.connect(server.url)
    js = client.jetstream()
    await js.add_stream(StreamConfig(name="S", subjects=["s"]))
    consumer = ConsumerConfig(ack_wait=1)
    pulled = await js.pull_subscribe("s", "pulls", config=consumer)
    await js.publish("s", b"x")
    await pulled.fetch(1)
    for offset in (10 * YEAR, -10 * YEAR):
        clock.set(offset)
        (message,) = await pulled.fetch(1, timeout=10)
        assert message.metadata.num_delivered > 1
    server.kill()
    await client.close()
    clock.set(-20 * YEAR)
    client = await nats.connect(start_server().url)
    pulled = await client.jetstream().pull_subscribe("s", "pulls", config=consumer)
    (message,) = await pulled.fetch(1, timeout=10)
    await message.ack_sync()
    await client.close()


@pytest.mark.parametrize("clock", ["wall clock"], indirect=True)
async def test_monitoring_counts_time_that_has_passed(
    clock: SetClock, start_server: Callable[..., Any], tmp_path: Path
) -> None:
    clock.set(-int(time.time()) + 100)
    config = tmp_path / "server.conf"
    config.write_text("http: 127.0.0.1:-1\n")
    server = start_server("-c", str(config))
    port = next(row for row in server.log if "http monitor on" in row).split()[-1]

    async def page(name: str) -> Any:
        with await asyncio.to_thread(urllib.request.urlopen, f"http://{port}/{name}") as answer:
            return json.load(answer)

    async def one_is_left() -> bool:
        return bool((await page("connz"))["num_connections"] == 1)

    gone = await nats.connect(server.url)
    client = await nats.connect(server.url)
    for offset in (0, 10 * YEAR, -10 * YEAR):
        clock.set(offset)
        await client.flush()
        assert (await page("edgez"))["uptime"] < 600
        if not gone.is_closed:
            await gone.close()
            await until(one_is_left, "the other has closed")
        for row in (await page("connz?state=all"))["connections"]:
            assert "y" not in row["uptime"] + row["idle"] and "h" not in row["uptime"], row
        assert "d" not in (await page("varz"))["uptime"]
    await client.close()
