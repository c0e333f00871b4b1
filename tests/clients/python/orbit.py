"""A tour with Python's new client, `nats-jetstream`, and its extensions: counters, batches, batch
reads, requests with many answers. It refuses answers with fields that it does not know.

`make clients` puts them into build/, where Python 3.13 is there for them.
"""

import asyncio
import dataclasses
import json
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from importlib import import_module
from typing import Any

client: Any = import_module("nats.client")
counters: Any = import_module("nats.counters")
extensions: Any = import_module("nats.extra")
fast: Any = import_module("nats.jetstream_extra.fast_publish")
jetstream: Any = import_module("nats.jetstream")
more: Any = import_module("nats.jetstream_extra")
batches: Any = import_module("nats.jetstream_extra.batch_publish")

OWN = {"batch_id", "leader", "_nats.ver"}
"""What is each server's own, beside moments."""
STEP_S = 20.0

Step = Callable[[], Awaitable[Any]]


def plain(value: Any) -> Any:
    """A value of the client without what is each server's own."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: "OWN" if key in OWN else plain(each) for key, each in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, datetime):
        return "a moment"
    if isinstance(value, timedelta):
        return value.total_seconds()
    if value is None or isinstance(value, str | int | float):
        return value
    return value.decode() if isinstance(value, bytes) else type(value).__name__


async def step(name: str, doing: Step) -> None:
    """Print what a step returns, or what it raises."""
    try:
        async with asyncio.timeout(STEP_S):
            found = plain(await doing())
    except Exception as error:  # Whatever the library raises is compared.
        found = f"{type(error).__name__}: {error}"
    print(name, json.dumps(found, sort_keys=True))


async def listed(several: Any) -> list[Any]:
    """All that an iterator gives, and what ends it early."""
    found: list[Any] = []
    try:
        async for each in several:
            found.append(
                [each.subject, each.sequence, each.data.decode()]
                if hasattr(each, "sequence") else each
            )
    except Exception as error:  # The same.
        found.append(f"{type(error).__name__}: {error}")
    return found


async def seen(consumer: Any, count: int) -> list[Any]:
    """What is fetched; each is acknowledged."""
    found = []
    async for msg in await consumer.fetch(max_messages=count, max_wait=2.0):
        place = msg.metadata
        found.append([
            msg.subject, msg.data.decode(), place.sequence.stream, place.sequence.consumer,
            place.num_delivered, place.num_pending,
        ])  # fmt: skip
        await msg.double_ack()
    return found


async def streams(js: Any) -> None:
    """Streams, messages and consumers."""
    await step("create", lambda: info_of(js.create_stream(
        name="S", subjects=["s.>"], storage="memory", allow_direct=True, max_msgs=100,
        max_age=timedelta(hours=1), metadata={"a": "b"}, description="d",
    )))
    await step("again", lambda: info_of(js.create_stream(name="S", subjects=["other"])))
    for number in range(12):
        sent = f"s.{number % 3}", str(number).encode()
        await step("publish", partial(js.publish, *sent))
    for _ in range(2):
        await step("id", lambda: js.publish("s.0", b"x", headers={"Nats-Msg-Id": "1"}))
    wrong = {"Nats-Expected-Last-Sequence": "3"}
    await step("unexpected", lambda: js.publish("s.0", b"x", headers=wrong))
    await step("update", lambda: js.update_stream(
        name="S", subjects=["s.>"], storage="memory", allow_direct=True, max_msgs=200,
    ))
    await step("info", lambda: js.get_stream_info("S"))
    stream = await js.get_stream("S")
    await step("get", lambda: stream.get_message(2))
    await step("get none", lambda: stream.get_message(99))
    await step("last", lambda: stream.get_last_message_for_subject("s.1"))
    await step("delete", lambda: stream.delete_message(2))
    await step("delete again", lambda: stream.secure_delete_message(2))
    await step("no stream", lambda: js.get_stream("NONE"))
    await step("names", lambda: listed(js.stream_names()))
    await step("list", lambda: listed(js.list_streams("s.1")))
    await step("account", js.account_info)
    await step("purge", lambda: stream.purge(filter="s.2", keep=1))
    await step("consumer", lambda: info_of(stream.create_consumer(
        name="C", durable_name="C", ack_policy="explicit", filter_subjects=["s.0", "s.1"],
        ack_wait=timedelta(seconds=20), max_deliver=4, metadata={"c": "d"},
    )))
    consumer = await stream.get_consumer("C")
    await step("fetch", lambda: seen(consumer, 4))
    await step("reset", lambda: consumer.reset(3))
    await step("fetch again", lambda: seen(consumer, 2))
    await step("consumer info", consumer.get_info)
    await step("ordered", lambda: ordered(stream))
    await step("consumers", lambda: listed(js.consumer_names("S")))
    await step("gone", lambda: js.delete_consumer("S", "C"))
    await step("gone again", lambda: js.delete_consumer("S", "C"))


async def info_of(made: Awaitable[Any]) -> Any:
    """What is known of a stream or a consumer that is made."""
    return (await made).info


async def ordered(stream: Any) -> list[Any]:
    """The first messages of an ordered consumer."""
    consumer = await stream.ordered_consumer()
    found = [(await consumer.next()).subject for _ in range(5)]
    await consumer.close()
    return found


async def reads(js: Any) -> None:
    """Batch reads."""
    await step("read", lambda: listed(more.get_batch(js, "S", 5)))
    await step("read from", lambda: listed(more.get_batch(js, "S", 5, seq=9)))
    subject = {"next_by_subject": "s.1", "seq": 3}
    await step("read subject", lambda: listed(more.get_batch(js, "S", 3, **subject)))
    await step("read bytes", lambda: listed(more.get_batch(js, "S", 20, max_bytes=60)))
    await step("read none", lambda: listed(more.get_batch(js, "S", 5, next_by_subject="none")))
    await step("read nowhere", lambda: listed(more.get_batch(js, "NONE", 5, timeout=1.0)))
    last = more.get_last_msgs_for
    await step("lasts", lambda: listed(last(js, "S", ["s.*"])))
    await step("lasts up to", lambda: listed(last(js, "S", ["s.0", "s.1"], up_to_seq=8)))
    await step("lasts few", lambda: listed(last(js, "S", ["s.>"], batch=2)))
    await step("lasts none", lambda: listed(last(js, "S", ["none"])))


async def atomic(js: Any) -> None:
    """Atomic batches."""
    await js.create_stream(
        name="ATOMIC", subjects=["atomic.>"], storage="memory", allow_atomic=True
    )
    await js.create_stream(name="PLAIN", subjects=["plain"], storage="memory")

    def sent(count: int, subject: str = "atomic.a", **headers: str) -> list[Any]:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        others = [batches.BatchMessage(subject, b"y") for _ in range(count - 1)]
        return [batches.BatchMessage(subject, b"x", named), *others]

    everyone = {
        "batch": (sent(7), {}),
        "batch with acks": (sent(20), {"ack_every": 3}),
        "batch without acks": (sent(3), {"ack_first": False}),
        "batch as expected": (sent(3, Nats_Expected_Last_Sequence="30"), {}),
        "batch not as expected": (sent(3, Nats_Expected_Last_Sequence="3"), {}),
        "batch of one": (sent(1), {}),
        "batch of the most": (sent(1000), {}),
        "batch elsewhere": (sent(3, "plain"), {}),
        "batch nowhere": (sent(3, "none"), {"timeout": 1.0}),
        "batch with an id": (sent(3, Nats_Msg_Id="1"), {}),
        "batch with the id again": (sent(3, Nats_Msg_Id="1"), {}),
        "batch of another level": (sent(3, Nats_Required_Api_Level="99"), {}),
    }
    for name, (messages, options) in everyone.items():
        await step(name, partial(batches.publish_batch, js, messages, **options))
    await step("batch state", lambda: js.get_stream_info("ATOMIC"))


async def fast_batches(js: Any) -> None:
    """Fast batches."""
    await js.create_stream(name="FAST", subjects=["fast.>"], storage="memory", allow_batched=True)

    async def sent(count: int, subject: str, commits: bool, **options: Any) -> Any:
        async with fast.fast_publish(js, **options) as publisher:
            for number in range(count):
                await publisher.add(f"{subject}.{number % 7}", b"x")
            if commits:
                return await publisher.commit(f"{subject}.last", b"y")
            return await publisher.close()

    await step("fast", lambda: sent(500, "fast", True))
    await step("fast with small flow", lambda: sent(300, "fast", True, flow=3))
    await step("fast closed", lambda: sent(5, "fast", False, gap_mode="ok"))
    await step("fast with nothing", lambda: sent(0, "fast", False))
    await step("fast alone", lambda: sent(0, "fast", True))
    await step("fast elsewhere", lambda: sent(5, "atomic", True, ack_timeout=2.0))
    await step("fast nowhere", lambda: sent(5, "none", True, ack_timeout=1.0))
    await step("fast state", lambda: js.get_stream_info("FAST"))


async def counted(js: Any) -> None:
    """Counters, also by way of a source."""
    made = {"storage": "memory", "allow_msg_counter": True, "allow_direct": True}
    await js.create_stream(name="COUNT", subjects=["count.>"], **made)
    counter = await counters.get_counter(js, "COUNT")
    for by in (5, -7, 0, 1 << 70):
        await step("count", partial(counter.add, "count.a", by))
    await step("count b", lambda: counter.add("count.b", 2))
    await step("load", lambda: counter.load("count.a"))
    await step("load none", lambda: counter.load("count.z"))
    await step("entry", lambda: counter.get("count.a"))
    await step("entries", lambda: listed(counter.get_multiple(["count.*"])))
    await step("no counter", lambda: counters.get_counter(js, "NONE"))
    await step("no stream of counters", lambda: counters.get_counter(js, "S"))
    await step("no count", lambda: js.publish("count.a", b"x"))
    await step("no number", lambda: js.publish("count.a", b"", headers={"Nats-Incr": "x"}))


async def many(nc: Any) -> None:
    """Requests with many answers."""
    services = [await nc.subscribe("many") for _ in range(3)]

    async def serve(service: Any) -> None:
        async for msg in service:
            await nc.publish(msg.reply, b"answer")

    tasks = [asyncio.create_task(serve(each)) for each in services]
    await nc.flush()

    async def asked(subject: str, **options: Any) -> list[Any]:
        answers = await extensions.request_many(nc, subject, **options)
        found = [msg.data.decode() async for msg in answers]
        return [*found, str(answers.termination_reason)]

    await step("many", lambda: asked("many", max_messages=3))
    await step("many two", lambda: asked("many", max_messages=2))
    await step("many that stall", lambda: asked("many", stall_wait=0.5))
    await step("nobody", lambda: asked("nobody", max_wait=2.0))
    for task in tasks:
        task.cancel()


async def main() -> None:
    """The tour."""
    nc = await client.connect(sys.argv[1])
    js = jetstream.new(nc, strict=True)
    await streams(js)
    await reads(js)
    await atomic(js)
    await fast_batches(js)
    await counted(js)
    await many(nc)
    await nc.close()


asyncio.run(main())
