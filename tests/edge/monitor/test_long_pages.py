"""Long pages are made in steps, between which a node does its other work."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest

from bench.servers import free_port
from headwater.edge.conf.options import JetStreamOptions, Options
from headwater.edge.monitor import steps
from headwater.edge.monitor.metrics import metrics_steps
from headwater.edge.monitor.pages import jsz
from headwater.edge.monitor.service import MonitorService
from headwater.edge.node.node import Node

STREAMS = 30
CONSUMERS = 2
DETAILS = "/jsz?accounts=1&streams=1&consumers=1"


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """A node with streams and consumers, which rests after each step of a page."""
    monkeypatch.setattr(steps, "STRETCH_NS", 0)
    jetstream = JetStreamOptions(enabled=True, store_dir=str(tmp_path), max_file_store=1 << 28)
    options = Options(host="127.0.0.1", port=-1, http_port=free_port(), jetstream=jetstream)
    found = Node(options, asyncio.get_running_loop())
    found.services.append(MonitorService(options))
    found.start()
    client = await nats.connect(found.ports()["nats"][0])
    js = client.jetstream()
    for stream in range(STREAMS):
        await js.add_stream(name=f"S{stream}", subjects=[f"s.{stream}"])
        for consumer in range(CONSUMERS):
            await js.add_consumer(f"S{stream}", durable_name=f"c{consumer}")
    await client.close()
    yield found
    await found.stop()


async def page(node: Node, path: str) -> str:
    """The body of a monitoring page."""
    port = node.options.http_port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 200 ")
    return body.decode()


def listed(body: str) -> list[dict[str, Any]]:
    """The streams of a page."""
    (account,) = json.loads(body)["account_details"]
    found: list[dict[str, Any]] = account.get("stream_detail", [])
    return found


@pytest.mark.parametrize("path", [DETAILS, "/metrics"])
async def test_the_loop_turns_while_a_page_is_made(node: Node, path: str) -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(turn())
    body = await page(node, path)
    task.cancel()
    assert turns > STREAMS * (1 + CONSUMERS)
    if path == DETAILS:
        assert len(listed(body)) == STREAMS
        assert all(len(one["consumer_detail"]) == CONSUMERS for one in listed(body))


def made_in_part(work: steps.Steps[Any], count: int) -> None:
    """Make so many steps of a page."""
    for _ in range(count):
        next(work)


async def test_streams_that_go_while_a_page_is_made_are_left_out(node: Node) -> None:
    """Wherever the page is then."""
    client = await nats.connect(node.ports()["nats"][0])
    wanted = jsz.JszOptions(accounts=True, streams=True, consumer=True)
    for gone in range(10):
        pages = jsz.jsz_steps(node, wanted), metrics_steps(node)
        made_in_part(pages[0], 2 + 3 * gone)
        made_in_part(pages[1], 2 + 3 * gone)
        last = STREAMS - 1 - gone
        await client.jetstream().delete_stream(f"S{last}")
        (account,) = steps.at_once(pages[0])["account_details"]
        assert [one["name"] for one in account["stream_detail"]] == [f"S{n}" for n in range(last)]
        assert f'stream_name="S{last - 1}"' in steps.at_once(pages[1])
    await client.close()


async def test_a_stream_that_goes_between_its_consumers_is_told_of_in_part(node: Node) -> None:
    client = await nats.connect(node.ports()["nats"][0])
    work = jsz.jsz_steps(node, jsz.JszOptions(streams=True, consumer=True))
    # The account was counted, and the first consumer is shown.
    made_in_part(work, 2)
    await client.jetstream().delete_stream("S0")
    (account,) = steps.at_once(work)["account_details"]
    counts = [len(one["consumer_detail"]) for one in account["stream_detail"]]
    assert counts == [1] + [CONSUMERS] * (STREAMS - 1)
    await client.close()


async def test_many_pages_share_the_stretches_of_one(node: Node) -> None:
    """They are made one after the other."""
    maker, made = steps.PageMaker(node.kernel.monotonic_ns), []

    def work(name: str) -> steps.Steps[None]:
        for _ in range(3):
            made.append(name)
            yield

    await asyncio.gather(maker.make(work("a")), maker.make(work("b")))
    assert "".join(made) == "aaabbb"
