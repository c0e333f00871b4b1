"""What consumers do while leaders are killed: each message is handed out, and none again that was
acknowledged with an answer."""

import asyncio
import json
from collections import Counter
from typing import Any

from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError

from bench.cluster.nodes import ask, insist
from tests.hub.cluster.failover_world import until
from tests.hub.cluster.stream_stories import Story


class Reading(Story):
    """A stream with a consumer; `handled` counts by stream sequence what came."""

    durable = "worker"
    consumer: dict[str, Any] = {"ack_wait": 2 * 10**9}

    async def begin(self) -> None:
        await super().begin()
        self.handled: Counter[int] = Counter()
        self.confirmed: set[int] = set()
        self.again: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.ends = asyncio.Event()
        await self.attach()

    async def attach(self) -> None:
        """Make the consumer, and read by it."""
        await self.world.consumer(self.client, self.stream, self.durable, **self.consumer)
        for number in range(2):
            self.tasks.append(asyncio.ensure_future(self.read(number)))

    async def read(self, number: int) -> None:
        """One reader."""
        client = await self.world.client(self.first + number)
        while not self.ends.is_set():
            try:
                await self.pull(client)
            except (NatsError, JetStreamError, TimeoutError):
                await asyncio.sleep(0.05)

    async def pull(self, client: Any, **more: Any) -> None:
        """One pull with heartbeats; handles what comes."""
        inbox = client.new_inbox()
        answers = await client.subscribe(inbox)
        try:
            body = {"batch": 20, "expires": 10**9, "idle_heartbeat": 3 * 10**8, **more}
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self.durable}"
            await client.publish(subject, json.dumps(body).encode(), reply=inbox)
            left = body["batch"]
            while left:
                message = await answers.next_msg(0.8)
                if not message.data and "Status" in (message.headers or {}):
                    if message.headers["Status"] == "100":
                        continue
                    self.status(message)
                    return
                left -= 1
                await self.take(message)
        finally:
            await answers.unsubscribe()

    def status(self, message: Any) -> None:
        """A pull has ended."""

    async def take(self, message: Any) -> None:
        """Handle a message, and wait until its ack is answered."""
        sequence = message.metadata.sequence.stream
        if sequence in self.confirmed:
            self.again.append(sequence)
        self.handled[sequence] += 1
        if await self.confirm(message):
            self.confirmed.add(sequence)

    async def confirm(self, message: Any) -> bool:
        """Acknowledge, and wait for the answer."""
        try:
            await message.ack_sync(timeout=1)
        except (NatsError, TimeoutError):
            return False
        return True

    async def check(self) -> None:
        await until(self.drained)
        await self.end()
        assert not self.again
        assert set(self.acked) <= set(self.handled)

    async def drained(self) -> bool:
        """Whether everything was handled and acknowledged."""
        info = await ask(self.client, f"CONSUMER.INFO.{self.stream}.{self.durable}")
        return not info["num_pending"] and not info["num_ack_pending"]

    async def end(self) -> None:
        """Stop reading."""
        self.ends.set()
        await asyncio.gather(*self.tasks)


class Worked(Reading):
    """A work queue is empty at the end."""

    stream = "WORKED"
    config = {"subjects": ["WORKED.*"], "retention": "workqueue"}

    async def check(self) -> None:
        await super().check()
        info = await insist(self.client, "STREAM.INFO.WORKED")
        assert info["state"]["messages"] == 0


class Interested(Reading):
    """Two consumers share a stream that keeps what interests somebody."""

    stream = "INTERESTED"
    config = {"subjects": ["INTERESTED.*"], "retention": "interest"}

    async def attach(self) -> None:
        await self.world.consumer(self.client, self.stream, "other", ack_policy="all")
        await super().attach()

    async def check(self) -> None:
        await super().check()
        info = await insist(self.client, "STREAM.INFO.INTERESTED")
        assert info["state"]["messages"] == info["state"]["last_seq"] == max(self.acked)
        js = self.client.jetstream()
        sub = await js.pull_subscribe_bind("other", self.stream)
        left = info["state"]["messages"]
        message = None
        while left > 0:
            count = min(left, 100)
            found = await self.world.persist(lambda count=count: sub.fetch(count, timeout=2))
            left -= len(found)
            message = found[-1]
        await message.ack_sync(timeout=5)

        async def empty() -> bool:
            info = await ask(self.client, "STREAM.INFO.INTERESTED")
            return info["state"]["messages"] == 0

        await until(empty)


class Pulled(Reading):
    """A pull consumer with heartbeats."""

    stream = "PULLED"
    config = {"subjects": ["PULLED.*"]}


class Pushed(Reading):
    """A push consumer with flow control and a queue group."""

    stream = "PUSHED"
    config = {"subjects": ["PUSHED.*"]}

    async def attach(self) -> None:
        self.deliver = f"deliver.{self.stream}"
        await self.world.consumer(
            self.client,
            self.stream,
            self.durable,
            deliver_subject=self.deliver,
            flow_control=True,
            idle_heartbeat=5 * 10**8,
            ack_wait=2 * 10**9,
        )
        self.beats = 0
        await self.client.subscribe(self.deliver, cb=self.hear)

    async def hear(self, message: Any) -> None:
        """Handle a message; answer flow control."""
        if "Status" in (message.headers or {}):
            self.beats += 1
            if message.reply:
                await message.respond(b"")
            return
        # Not within the callback: the client would hear nothing meanwhile.
        task = asyncio.ensure_future(self.take(message))
        self.tasks.append(task)


class Ordered(Story):
    """An ordered consumer hands every message out once, in order."""

    stream = "ORDERED"
    config = {"subjects": ["ORDERED.*"]}

    async def begin(self) -> None:
        await super().begin()
        self.heard: list[int] = []

        async def hear(message: Any) -> None:
            self.heard.append(message.metadata.sequence.stream)

        js = self.client.jetstream()
        await js.subscribe("ORDERED.*", ordered_consumer=True, cb=hear, idle_heartbeat=0.5)

    async def check(self) -> None:
        await super().check()

        async def all_heard() -> bool:
            return len(self.heard) >= len(self.acked)

        await until(all_heard)
        assert self.heard == sorted(self.acked)


class Pinned(Reading):
    """One of two clients is pinned; the other takes over when it is gone."""

    stream = "PINNED"
    config = {"subjects": ["PINNED.*"]}
    consumer = {
        "ack_wait": 2 * 10**9,
        "priority_groups": ["g"],
        "priority_policy": "pinned_client",
        "priority_timeout": 2 * 10**9,
    }

    async def begin(self) -> None:
        self.pins: dict[Any, str] = {}
        self.holders: dict[str, Any] = {}
        await super().begin()

    async def pull(self, client: Any, **more: Any) -> None:
        pin = self.pins.get(client)
        await super().pull(client, group="g", **({"id": pin} if pin else {}))

    async def take(self, message: Any) -> None:
        client, pin = message._client, message.headers["Nats-Pin-Id"]
        assert self.holders.setdefault(pin, client) is client, "two hold one pin"
        self.pins[client] = pin
        await super().take(message)

    def status(self, message: Any) -> None:
        if message.headers["Status"] == "423":
            self.pins.pop(message._client, None)

    async def check(self) -> None:
        await super().check()
        assert self.holders


class Overflowing(Reading):
    """A consumer with priority group `overflow`: the second client gets what waits too long."""

    stream = "OVERFLOWING"
    config = {"subjects": ["OVERFLOWING.*"]}
    consumer = {
        "ack_wait": 2 * 10**9,
        "priority_groups": ["g"],
        "priority_policy": "overflow",
    }

    async def pull(self, client: Any, **more: Any) -> None:
        await super().pull(client, group="g", min_pending=1, **more)


class Paused(Reading):
    """A paused consumer hands out nothing until its time, and everything then."""

    stream = "PAUSED"
    config = {"subjects": ["PAUSED.*"]}

    async def attach(self) -> None:
        await super().attach()
        self.resumed = False
        answer = await insist(
            self.client,
            f"CONSUMER.PAUSE.{self.stream}.{self.durable}",
            pause_until="2100-01-01T00:00:00Z",
        )
        assert answer["paused"]

    async def take(self, message: Any) -> None:
        assert self.resumed
        await super().take(message)

    async def check(self) -> None:
        assert not self.handled
        self.resumed = True
        await insist(self.client, f"CONSUMER.PAUSE.{self.stream}.{self.durable}")
        await super().check()


class Reset(Story):
    """A consumer that is reset hands out again what comes after, whoever leads."""

    stream = "RESET"
    config = {"subjects": ["RESET.*"]}

    async def begin(self) -> None:
        await super().begin()
        await self.world.consumer(self.client, self.stream, "worker")
        await super().one(0)
        await super().one(1)
        self.resets = 0

    async def one(self, number: int) -> None:
        await super().one(number + 2)
        if number % 10:
            return
        answer = await insist(self.client, "CONSUMER.RESET.RESET.worker", seq=2)
        assert "error" not in answer, answer
        assert answer["reset_seq"] == 2
        js = self.client.jetstream()
        sub = await js.pull_subscribe_bind("worker", self.stream)

        async def fetch() -> Any:
            return (await sub.fetch(1, timeout=1))[0]

        message = await self.world.persist(fetch)
        # What a fetch that timed out had asked for may have taken the first one.
        assert message.metadata.sequence.stream >= 2
        self.resets += 1
        await sub.unsubscribe()

    async def check(self) -> None:
        await super().check()
        assert self.resets > 3


STORIES = (
    Worked,
    Interested,
    Pulled,
    Pushed,
    Ordered,
    Pinned,
    Overflowing,
    Paused,
    Reset,
)
