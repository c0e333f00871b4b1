"""A program's reading of a durable consumer: messages in batches, and what becomes of the rest.

What was delivered and not handed to the program is given back at the end, so that whoever reads
next has it at once. While the program is slow, the consumer is told that messages wait here;
what waited too long is left to it, because it delivers that again.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from nats.errors import ConnectionClosedError, Error
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo
from nats.js.errors import APIError, NotFoundError

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription
    from nats.js import JetStreamContext

ACK_WAIT_S = 30.0
"""Seconds after which a message that was taken and not acknowledged is delivered again."""

ASK_S = 5.0
"""Seconds for which one request for messages holds."""

LATE_S = 1.0
"""Seconds after the end of a request in which the consumer has to say that it ended."""

NO_MESSAGES, EXPIRED, NOBODY = "404", "408", "503"
"""Status codes that end a request: two that nothing came, one that nobody answers."""

ACK = "$JS.ACK."
"""What a reply to a delivered message begins with. Its own headers may have a status, too."""

HEARTBEAT = "100"
"""Status code of what only says that the server is there."""

KEEP, GIVE_UP = 1 / 3, 0.9
"""Parts of the ack wait: after the first the consumer is told that a message still waits here,
after the second it is left to the consumer."""


async def open_consumer(
    jetstream: "JetStreamContext", stream: str, durable: str, subject: str
) -> ConsumerInfo:
    """The pull consumer `durable`, made if it is not there. Of an empty `subject` it is for all,
    or for what it was made for.

    Raises ValueError when it is there for other subjects, or pushes; NotFoundError when there is
    no such stream; APIError.
    """
    try:
        info: ConsumerInfo = await jetstream.consumer_info(stream, durable)
    except NotFoundError:
        return await jetstream.add_consumer(
            stream,
            ConsumerConfig(
                name=durable, durable_name=durable, filter_subject=subject or None,
                ack_policy=AckPolicy.EXPLICIT, ack_wait=ACK_WAIT_S,
            ),
        )  # fmt: skip
    config = info.config
    if config.deliver_subject:
        raise ValueError(
            f"the consumer {durable!r} of {stream!r} pushes to {config.deliver_subject!r}: give "
            "another name"
        )
    there = config.filter_subjects or [config.filter_subject or ">"]
    if subject and there != [subject]:
        raise ValueError(
            f"the consumer {durable!r} of {stream!r} is there for {', '.join(there)}: give another "
            "name, or leave `subject` out"
        )
    return info


class Reading:
    """Of one consumer by one `async for`; `end` may be called by others."""

    def __init__(
        self,
        client: "Client",
        jetstream: "JetStreamContext",
        info: ConsumerInfo,
        batch: int,
        clock: Callable[[], float],
    ) -> None:
        config = info.config
        self.client = client
        self.jetstream = jetstream
        self.stream = info.stream_name
        self.consumer = info.name
        self.batch = batch
        """Messages that are asked for at once; no more are ever held."""
        self.ack_wait = config.backoff[0] if config.backoff else config.ack_wait or ACK_WAIT_S
        """Seconds, as the consumer has it."""
        self.ended = False
        self._clock = clock
        """Seconds, as the loop has them."""
        self._held: deque[Msg] = deque()
        """Delivered, and not handed to the program."""
        self._known_at = self._clock()
        """When the oldest of them came, or the consumer was last told that they wait."""
        self._owed = 0
        """Messages that the open request may still bring."""
        self._asked_until = 0.0
        """When the open request has ended, at the latest."""
        self._refusal = ""
        """What the consumer said when it refused a request."""
        self._leaves = False
        """It asks no more, and keeps what is on its way to give all of it back together."""
        self._news = asyncio.Event()
        self.client_ended = asyncio.Event()
        """Set when the client brings nothing more; nats-py would let a drain wait for ever."""

    async def messages(self) -> "AsyncGenerator[Msg]":
        """Endless, until `end`. Raises NotFoundError when stream or consumer are deleted, and
        ValueError when it refuses requests of `batch` messages."""
        inbox = self.client.new_inbox()
        subscription = await self.client.subscribe(inbox, cb=self._came)
        try:
            while not self.ended:
                await self._keep_held()
                if self._held:
                    yield self._held.popleft()
                else:
                    await self._wait(inbox)
        except ConnectionClosedError:
            if not self.ended:
                raise
        finally:
            self.ended = self._leaves = True
            # What is on its way comes first; what was given back before might come here again.
            await self._drain(subscription)
            await self.end()

    async def end(self) -> None:
        """Give back what the program has not got. Idempotent."""
        self.ended = True
        self._news.set()
        while self._held and not self.client.is_closed:
            await self._held.popleft().nak()

    async def _drain(self, subscription: "Subscription") -> None:
        """Have all come that is on its way, unless the client ends meanwhile."""
        waits = [
            asyncio.ensure_future(subscription.drain()),  # type: ignore[no-untyped-call]
            asyncio.ensure_future(self.client_ended.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            drained, _ = await asyncio.gather(*waits, return_exceptions=True)
        if isinstance(drained, Exception) and not isinstance(drained, Error):
            raise drained

    async def _came(self, message: "Msg") -> None:
        status = (message.headers or {}).get("Status", "")
        if message.reply.startswith(ACK) or not status:
            if self.ended and not self._leaves:
                await message.nak()
                return
            if not self._held:
                self._known_at = self._clock()
            self._held.append(message)
            self._owed -= 1
        elif status == HEARTBEAT:
            return
        else:
            self._owed = 0
            if status not in (NO_MESSAGES, EXPIRED):
                self._refusal = (message.headers or {}).get("Description", "") or status
        self._news.set()

    async def _keep_held(self) -> None:
        waited = self._clock() - self._known_at
        if waited > self.ack_wait * GIVE_UP:
            self._held.clear()
        elif self._held and waited > self.ack_wait * KEEP:
            self._known_at = self._clock()
            for message in list(self._held):
                await message.in_progress()

    async def _wait(self, inbox: str) -> None:
        """Until something came, or the open request has ended; ask when none is open."""
        if self._refusal:
            await self._refused()
        now = self._clock()
        if self._owed <= 0 or now > self._asked_until:
            self._owed = self.batch
            self._asked_until = now + ASK_S + LATE_S
            request = {"batch": self.batch, "expires": int(ASK_S * 1e9)}
            subject = self.jetstream._prefix + f".CONSUMER.MSG.NEXT.{self.stream}.{self.consumer}"
            await self.client.publish(subject, json.dumps(request).encode(), inbox)
        self._news.clear()
        try:
            async with asyncio.timeout(self._asked_until - now):
                await self._news.wait()
        except TimeoutError:
            self._owed = 0

    async def _refused(self) -> None:
        """A request was refused: raise what explains it, or wait a little."""
        said, self._refusal = self._refusal, ""
        try:
            await self.jetstream.consumer_info(self.stream, self.consumer)
        except NotFoundError:
            raise
        except APIError:
            pass
        if said.startswith("Exceeded MaxRequest"):
            raise ValueError(
                f"the consumer {self.consumer!r} of {self.stream!r} refuses requests of "
                f"{self.batch} messages: {said}"
            )
        await asyncio.sleep(LATE_S)
