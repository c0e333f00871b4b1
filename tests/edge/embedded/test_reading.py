"""What a program reads by `node.consume`, and what becomes of what it does not take."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import ConnectionClosedError
from nats.js.api import ConsumerConfig
from nats.js.errors import NotFoundError

import headwater.edge
from headwater.edge.embedded.embedded_node import EmbeddedNode
from headwater.edge.embedded.reading import Reading, open_consumer
from tests.waiting import until

PATIENCE_S = 25
"""Less than the ack wait of 30 s, after which everything comes again anyhow."""


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[EmbeddedNode]:
    config = {"jetstream": {"store_dir": tmp_path / "store"}}
    async with headwater.edge.open_node(config, listen=False) as opened:
        await opened.stream("S", ["s.*"])
        yield opened


async def publish(node: EmbeddedNode, count: int) -> None:
    for number in range(count):
        await node.publish(f"s.{number % 2}", b"%d" % number)


async def first(node: EmbeddedNode, **options: Any) -> bytes:
    """What the next loop over the consumer gets first; it is left then."""
    async with asyncio.timeout(PATIENCE_S):
        async for message in node.consume("S", "worker", **options):
            await message.ack()
            return message.data
    raise AssertionError("the loop ended by itself")


async def waiting(node: EmbeddedNode) -> bool:
    consumers = await node.jetstream.consumers_info("S")
    return any(info.num_waiting for info in consumers if info.name == "worker")


async def test_whoever_reads_next_goes_on_behind_what_was_taken(node: EmbeddedNode) -> None:
    await publish(node, 20)
    assert [await first(node) for _ in range(5)] == [b"%d" % number for number in range(5)]


async def test_a_message_may_have_a_status_of_its_own(node: EmbeddedNode) -> None:
    """A publisher's header does not make it one of the server's answers."""
    await node.jetstream.publish("s.a", b"", headers={"Status": "404"})
    await publish(node, 1)
    assert [await first(node), await first(node)] == [b"", b"0"]


async def test_a_cancelled_reader_keeps_nothing(node: EmbeddedNode) -> None:
    async def read() -> None:
        async for message in node.consume("S", "worker"):
            await message.ack()
            taken.set()
            await asyncio.Event().wait()

    for number in range(3):
        await publish(node, 3)
        taken = asyncio.Event()
        reader = asyncio.create_task(read())
        await asyncio.wait_for(taken.wait(), PATIENCE_S)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert await first(node) == b"1", number
        assert await first(node) == b"2", number


async def test_what_is_given_back_goes_to_the_next_reader(
    node: EmbeddedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request of the reader that leaves may still be open: it must not get it once more."""
    drain = Subscription.drain

    async def slow_drain(subscription: Subscription) -> None:
        await subscription._conn.flush()
        await drain(subscription)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(Subscription, "drain", slow_drain)
    await publish(node, 3)
    assert await first(node) == b"0"
    async with aclosing(node.consume("S", "worker")) as messages:
        seen = [await asyncio.wait_for(anext(messages), PATIENCE_S) for _ in range(2)]
        assert [message.metadata.num_delivered for message in seen] == [2, 2]
        assert [message.data for message in seen] == [b"1", b"2"]


async def test_what_is_published_behind_a_reader_that_left_is_the_next_ones(
    node: EmbeddedNode,
) -> None:
    await publish(node, 1)
    for number in range(1, 5):
        async with aclosing(node.consume("S", "worker")) as messages:
            await (await anext(messages)).ack()
            # The request of this loop is open, and the next message is on its way to it.
            pending = asyncio.create_task(anext(messages))
            await until(lambda: waiting(node), "it waits")
            pending.cancel()
            await asyncio.wait([pending])
        await node.publish("s.0", b"next %d" % number)
    assert await first(node) == b"next 4"


async def test_a_reader_of_other_subjects_is_told(node: EmbeddedNode) -> None:
    await publish(node, 4)
    assert await first(node, subject="s.1") == b"1"
    with pytest.raises(ValueError, match=r"'worker' of 'S' is there for s\.1"):
        await first(node, subject="s.0")
    assert await first(node) == b"3"
    await node.jetstream.add_consumer("S", ConsumerConfig(durable_name="p", deliver_subject="x"))
    with pytest.raises(ValueError, match="'p' of 'S' pushes"):
        await anext(node.consume("S", "p"))


@pytest.mark.parametrize("what", ["stream", "consumer"])
async def test_a_loop_ends_with_its_stream_or_consumer(node: EmbeddedNode, what: str) -> None:
    reader = asyncio.create_task(first(node))
    await until(lambda: waiting(node), "it waits")
    if what == "stream":
        await node.jetstream.delete_stream("S")
    else:
        await node.jetstream.delete_consumer("S", "worker")
    with pytest.raises(NotFoundError):
        await reader
    with pytest.raises(NotFoundError):
        await anext(node.consume("NONE", "worker"))


async def test_a_consumer_that_refuses_is_told(node: EmbeddedNode) -> None:
    request = {"stream_name": "S", "config": {
        "durable_name": "worker", "ack_policy": "explicit", "max_batch": 7,
    }}  # fmt: skip
    await node.client.request("$JS.API.CONSUMER.CREATE.S.worker", json.dumps(request).encode())
    await publish(node, 1)
    with pytest.raises(ValueError, match="requests of 100 messages"):
        await first(node)
    assert await first(node, batch=7) == b"0"


class Clock:
    """The loop's, and ahead of it by as much as a test says."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return asyncio.get_running_loop().time() + self.ahead


async def reading_of(node: EmbeddedNode, clock: Clock, batch: int) -> Reading:
    info = await open_consumer(node.jetstream, "S", "worker", "")
    return Reading(node.client, node.jetstream, info, batch, clock)


async def test_what_waits_for_a_slow_program_is_not_delivered_again(node: EmbeddedNode) -> None:
    await publish(node, 10)
    clock = Clock()
    reading = await reading_of(node, clock, 10)
    told: list[Msg] = []

    async def note(message: Msg) -> None:
        told.append(message)

    await node.client.subscribe("$JS.ACK.S.worker.>", cb=note)
    async with aclosing(reading.messages()) as messages:
        assert (await anext(messages)).data == b"0"
        await until(lambda: len(reading._held) == 9, "all are here")
        clock.ahead = reading.ack_wait / 2
        assert (await anext(messages)).data == b"1"
        await until(lambda: len(told) >= 9, "the consumer is told of nine")
        assert [message.data for message in told] == [b"+WPI"] * 9


async def test_what_waited_too_long_is_taken_anew(node: EmbeddedNode) -> None:
    """The consumer delivers it to whoever asks, so two programs would do it."""
    await node.jetstream.add_consumer("S", ConsumerConfig(durable_name="worker", ack_wait=1))
    await publish(node, 3)
    clock = Clock()
    reading = await reading_of(node, clock, 3)
    found: list[tuple[bytes, int]] = []
    async with aclosing(reading.messages()) as messages:
        async for message in messages:
            found.append((message.data, message.metadata.num_delivered))
            await message.ack_sync()
            if len(found) == 1:
                await until(lambda: len(reading._held) == 2, "all are here")
                clock.ahead = 0.95
            if len(found) == 3:
                break
    assert [data for data, _ in found] == [b"0", b"1", b"2"]
    assert [count for _, count in found] == [1, 2, 2]


async def test_publishes_on_their_way_are_answered_at_the_end(tmp_path: Path) -> None:
    """Whoever publishes without end is refused in the midst of it, and misses no answer."""
    acked: list[int] = []

    async def publish_for_ever() -> None:
        while True:
            acked.append((await node.publish("s.0", b"x" * 100)).seq)

    config = {"jetstream": {"store_dir": tmp_path / "store"}}
    async with headwater.edge.open_node(config, listen=False) as node:
        await node.stream("S", ["s.*"])
        tasks = [asyncio.create_task(publish_for_ever()) for _ in range(20)]
        await until(lambda: len(acked) > 100, "many were published")
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(outcome, ConnectionClosedError)
    async with headwater.edge.open_node(config, listen=False) as node:
        state = (await node.jetstream.stream_info("S")).state
        assert sorted(acked) == list(range(1, state.last_seq + 1))


async def test_a_request_without_an_answer_ends_with_the_node(tmp_path: Path) -> None:
    async def ask() -> None:
        await node.client.request("nobody.answers", b"", timeout=600)

    async with headwater.edge.open_node({}, listen=False) as node:
        heard = asyncio.Event()

        async def hear(message: Msg) -> None:
            heard.set()

        await node.client.subscribe("nobody.answers", cb=hear)
        asked = asyncio.create_task(ask())
        await asyncio.wait_for(heard.wait(), PATIENCE_S)
    with pytest.raises(ConnectionClosedError):
        await asyncio.wait_for(asked, PATIENCE_S)


async def test_a_cancellation_is_never_lost(node: EmbeddedNode) -> None:
    async def publish_for_ever() -> None:
        while True:
            await node.publish("s.0", b"x")

    for turns in range(60):
        tasks: Sequence[asyncio.Task[None]] = [
            asyncio.create_task(publish_for_ever()) for _ in range(10)
        ]
        for _ in range(3 + turns):
            await node.client.flush()
        for task in tasks:
            task.cancel()
        _, late = await asyncio.wait(tasks, timeout=PATIENCE_S)
        assert not late


async def test_a_bucket_is_changed_to_be_as_it_is_asked_for(node: EmbeddedNode) -> None:
    bucket = await node.key_value("B", history=3, ttl=600, description="first")
    await bucket.put("k", b"v")
    bucket = await node.key_value("B", history=5)
    status = await bucket.status()
    assert (status.history, status.ttl) == (5, 600)
    assert status.stream_info.config.description == "first"
    await node.key_value("B", ttl=60, max_value_size=10)
    bucket = await node.key_value("B")
    status = await bucket.status()
    assert (status.history, status.ttl) == (5, 60)
    assert status.stream_info.config.max_msg_size == 10
    assert (await bucket.get("k")).value == b"v"
