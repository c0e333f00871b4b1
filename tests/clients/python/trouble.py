"""What a program of nats-py does while its servers come and go (tests/clients/troubles.py)."""

import asyncio
import sys
from collections.abc import Awaitable
from typing import Any

import nats
from nats.aio.client import Client
from nats.js.api import ConsumerConfig
from nats.micro import add_service
from nats.micro.request import Request

from tests.clients.python.trouble_steps import failed, in_window, insist, repeat, run, say


async def user() -> Client:
    """A connection that is told when it is cut off."""

    async def cut() -> None:
        say("LINK disconnect")

    async def back() -> None:
        say("LINK reconnect")

    async def ignore(error: Exception) -> None:
        """What the library writes to its log."""

    return await nats.connect(
        sys.argv[1].split(","), max_reconnect_attempts=-1, dont_randomize=True,
        disconnected_cb=cut, reconnected_cb=back, error_cb=ignore,
    )  # fmt: skip


async def publishers(nc: Client) -> None:
    """All that sends."""
    js = nc.jetstream()
    kv = await js.key_value("TROUBLEKV")
    objects = await js.object_store("TROUBLEOBJ")
    blob = b"x" * 200_000

    def stored(kind: str, number: int) -> Awaitable[Any]:
        return js.publish(
            f"trouble.{kind}", b"%d" % number, headers={"Nats-Msg-Id": f"{kind[0]}{number}"}
        )

    async def core(number: int) -> None:
        await nc.publish("trouble.queue", b"%d" % number)
        say("ACKED queue", number)

    async with asyncio.TaskGroup() as group:
        group.create_task(in_window(lambda n: stored("async", n)))
        for pause, work in (
            (0.01, lambda n: insist("sync", n, lambda: stored("sync", n))),
            (0.02, lambda n: insist("kv", n, lambda: kv.put("k", b"%d" % n))),
            (0.5, lambda n: insist("object", n, lambda: objects.put(f"o{n}", blob))),
            (0.02, lambda n: insist("asked", n, lambda: nc.request("trouble.service", b"", 2))),
            (0.01, core),
        ):
            group.create_task(repeat(pause, work))
    await nc.flush()


async def consume(nc: Client) -> None:
    """Fetch after fetch, each message with a double ack."""
    js = nc.jetstream()
    work = await js.pull_subscribe_bind("work", "TROUBLE")

    async def done(msg: Any) -> None:
        try:
            await msg.ack_sync(timeout=10)
            say("DONE", msg.metadata.sequence.stream)
        except Exception as error:  # Whatever the library raises is told.
            failed("ack", error)

    async with asyncio.TaskGroup() as acks:
        while True:
            try:
                for msg in await work.fetch(50, 5):
                    say("GOT work", msg.metadata.sequence.stream)
                    acks.create_task(done(msg))
            except nats.errors.TimeoutError:
                """Nothing was there."""
            except Exception as error:  # Whatever the library raises is told.
                failed("consume", error)
                await asyncio.sleep(0.1)


async def ordered(nc: Client) -> None:
    """The stream in its order."""
    ordered = await nc.jetstream().subscribe(
        "trouble.>", ordered_consumer=True, config=ConsumerConfig(inactive_threshold=30)
    )
    async for msg in ordered.messages:
        say("GOT ordered", msg.metadata.sequence.stream)
    say("ERROR ordered ended")


async def watch(nc: Client) -> None:
    """Each value of the bucket."""
    kv = await nc.jetstream().key_value("TROUBLEKV")
    async for entry in await kv.watchall():
        if entry is not None:
            say("GOT watch", entry.revision)
    say("ERROR watch ended")


async def receivers(nc: Client) -> list[asyncio.Task[None]]:
    """All that receives."""

    async def heard(msg: Any) -> None:
        say("GOT queue", msg.data.decode())

    for _ in range(2):
        await nc.subscribe("trouble.queue", "q", cb=heard)

    async def serve(request: Request) -> None:
        await request.respond(request.data)

    service = await add_service(nc, name="trouble", version="1.0.0")
    await service.add_endpoint(name="trouble", subject="trouble.service", handler=serve)
    return [asyncio.create_task(each(nc)) for each in (consume, ordered, watch)]


asyncio.run(run(user, receivers, publishers))
