"""What a program of Python's new client, `nats-jetstream`, does while its servers come and go
(tests/clients/troubles.py). It has no buckets and no services.
"""

import asyncio
import sys
from collections.abc import Awaitable
from importlib import import_module
from typing import Any

from tests.clients.python.trouble_steps import failed, in_window, insist, repeat, run, say

client: Any = import_module("nats.client")
jetstream: Any = import_module("nats.jetstream")


async def user() -> Any:
    """A connection; others are dialled as the server names them."""
    nc = await client.connect(sys.argv[1].split(",")[0], reconnect_max_attempts=0)
    nc.add_disconnected_callback(lambda: say("LINK disconnect"))
    nc.add_reconnected_callback(lambda: say("LINK reconnect"))
    return nc


async def publishers(nc: Any) -> None:
    """All that sends."""
    js = jetstream.new(nc)

    def stored(kind: str, number: int) -> Awaitable[Any]:
        once = {"Nats-Msg-Id": f"{kind[0]}{number}"}
        sent: Awaitable[Any] = js.publish(f"trouble.{kind}", b"%d" % number, headers=once)
        return sent

    async with asyncio.TaskGroup() as group:
        group.create_task(in_window(lambda n: stored("async", n)))
        for pause, work in (
            (0.01, lambda n: insist("sync", n, lambda: stored("sync", n))),
            (0.02, lambda n: insist("asked", n, lambda: nc.request("trouble.service", b""))),
            (0.01, lambda n: insist("queue", n, lambda: nc.publish("trouble.queue", b"%d" % n))),
        ):
            group.create_task(repeat(pause, work))
    await nc.flush()


async def consume(nc: Any) -> None:
    """A stream of messages, each with a double ack."""

    async def done(msg: Any) -> None:
        try:
            await msg.double_ack()
            say("DONE", msg.metadata.sequence.stream)
        except Exception as error:  # Whatever the library raises is told.
            failed("ack", error)

    async with asyncio.TaskGroup() as acks:
        while True:
            try:
                consumer = await jetstream.new(nc).get_consumer("TROUBLE", "work")
                async for msg in await consumer.messages(max_messages=50):
                    say("GOT work", msg.metadata.sequence.stream)
                    acks.create_task(done(msg))
                say("ERROR consume ended")
            except Exception as error:  # Whatever the library raises is told.
                failed("consume", error)
            await asyncio.sleep(0.1)


async def ordered(nc: Any) -> None:
    """The stream in its order."""
    consumer = await jetstream.new(nc).ordered_consumer("TROUBLE")
    try:
        async for msg in await consumer.messages():
            say("GOT ordered", msg.metadata.sequence.stream)
        say("ERROR ordered ended")
    except Exception as error:  # Whatever the library raises is told.
        failed("ordered", error)


async def receivers(nc: Any) -> list[asyncio.Task[None]]:
    """All that receives."""

    async def member(subscription: Any) -> None:
        async for msg in subscription:
            say("GOT queue", msg.data.decode())

    async def serve(subscription: Any) -> None:
        async for msg in subscription:
            await nc.publish(msg.reply, b"")

    members = [await nc.subscribe("trouble.queue", queue="q") for _ in range(2)]
    running = [member(each) for each in members]
    running.append(serve(await nc.subscribe("trouble.service", queue="q")))
    return [asyncio.create_task(each) for each in (*running, consume(nc), ordered(nc))]


asyncio.run(run(user, receivers, publishers))
