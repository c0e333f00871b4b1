"""A tour with the first release of the Python client that has JetStream.

`make clients` puts that release into build/.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "build" / "old-nats-py"))

nats: Any = import_module("nats")

OWN = {"created", "ts", "leader", "_nats.ver", "first_ts", "last_ts", "deliver_subject", "id"}
"""What is each server's own."""
STEP_S = 20.0

Step = Callable[[], Awaitable[Any]]


def plain(value: Any) -> Any:
    """A value of the client without what is each server's own."""
    if hasattr(value, "__dict__"):
        value = vars(value)
    if isinstance(value, dict):
        return {key: "OWN" if key in OWN else plain(each) for key, each in sorted(value.items())}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def seen(msg: Any) -> list[Any]:
    """What a delivery says."""
    info = msg.metadata
    order = info.sequence
    return [
        msg.subject, msg.data.decode(), order.stream, order.consumer,
        info.num_delivered, info.num_pending, info.stream,
    ]  # fmt: skip


class Tour:
    """Steps on one connection."""

    def __init__(self, nc: Any) -> None:
        self.nc = nc
        self.js = nc.jetstream()

    async def core(self) -> Any:
        sub = await self.nc.subscribe("a.>")
        await self.nc.publish("a.1", b"x")
        await self.nc.publish("a.2", b"y", headers={"K": "v w"})
        got = [await sub.next_msg(timeout=5) for _ in range(2)]
        return [[each.subject, each.data.decode(), each.headers] for each in got]

    async def requests(self) -> Any:
        async def answer(msg: Any) -> None:
            await self.nc.publish(msg.reply, b"re:" + msg.data)

        await self.nc.subscribe("svc", cb=answer)
        old = await self.nc.request("svc", b"q", timeout=5, old_style=True)
        return [(await self.nc.request("svc", b"q", timeout=5)).data.decode(), old.data.decode()]

    async def nobody(self) -> Any:
        return await self.nc.request("nobody", b"", timeout=5)

    async def raw(self) -> Any:
        found = []
        body = json.dumps({"name": "R", "subjects": ["r.*"]}).encode()
        for subject in ("INFO", "STREAM.CREATE.R", "STREAM.NAMES", "STREAM.DELETE.R"):
            sent = body if "CREATE" in subject else b""
            answer = await self.nc.request(f"$JS.API.{subject}", sent, timeout=5)
            found.append(plain(json.loads(answer.data)))
        return found

    async def add(self) -> Any:
        made = await self.js.add_stream(name="S", subjects=["s.>"])
        return plain([made, await self.js.stream_info("S"), await self.js.account_info()])

    async def publish(self) -> Any:
        acks = [await self.js.publish(f"s.{at % 3}", b"d%d" % at) for at in range(20)]
        twice = [await self.js.publish("s.h", headers={"Nats-Msg-Id": "1"}) for _ in range(2)]
        return plain(acks + twice)

    async def no_stream(self) -> Any:
        return plain(await self.js.publish("none.here", b""))

    async def pull(self) -> Any:
        sub = await self.js.pull_subscribe("s.>", "pull")
        found = []
        for batch in (1, 5, 15):
            for msg in await sub.fetch(batch, timeout=0.5):
                found.append(seen(msg))
                await msg.ack_sync()
        return [found, plain(await sub.consumer_info())]

    async def nothing_left(self) -> Any:
        sub = await self.js.pull_subscribe("s.none", "none")
        return await sub.fetch(1, timeout=0.3)

    async def ended(self) -> Any:
        sub = await self.js.pull_subscribe("s.1", "ended")
        (first,) = await sub.fetch(1)
        await first.in_progress()
        await first.term()
        (second,) = await sub.fetch(1)
        return [*map(seen, (first, second))]

    async def push(self) -> Any:
        sub = await self.js.subscribe("s.>", durable="push")
        found = []
        for _ in range(21):
            msg = await sub.next_msg(timeout=5)
            await msg.ack_sync()
            found.append(seen(msg))
        await sub.unsubscribe()
        return found

    async def admin(self) -> Any:
        info = plain(await self.js.consumer_info("S", "push"))
        gone = [await self.js.delete_consumer("S", "push"), await self.js.delete_stream("S")]
        return [info, gone]

    async def gone(self) -> Any:
        return plain(await self.js.stream_info("S"))


async def main(url: str) -> None:
    """Each step's name and result, a line each."""
    nc = await nats.connect(url)
    tour = Tour(nc)
    for name, step in vars(Tour).items():
        if name.startswith("_"):
            continue
        try:
            found = await asyncio.wait_for(step(tour), STEP_S)
        except Exception as error:
            found = f"{type(error).__name__} {error}"
        print(name, json.dumps(found))
    await nc.close()


asyncio.run(main(sys.argv[1]))
