"""The program on one gateway: publishes telemetry to its own node and works on it locally.

Runs as a process of its own: `python -m headwater.deploy.demo.agent …`. Prints one JSON line of
progress a few times a second. Every id that the node has acknowledged is written to a file, so that
the fleet's result can be compared with what the publishers were promised.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
import nats
from nats.errors import ConnectionClosedError, NoRespondersError, TimeoutError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import APIError, ServiceUnavailableError

from headwater.deploy.demo.telemetry import Sample, samples

STREAM = "TELEMETRY"
IN_FLIGHT = 256
"""Publishes that wait for their ack at once."""

REPORT_EVERY_S = 0.2
RETRY_AFTER_S = 0.2
TRANSIENT = (TimeoutError, NoRespondersError, ServiceUnavailableError, APIError, OSError)


class Agent:
    """Publisher and local consumer of one edge."""

    def __init__(self, device: str, count: int, acks: IO[str], rate: float) -> None:
        self.device = device
        self.count = count
        self.acks = acks
        self.rate = rate
        self.acked = 0
        self.retried = 0
        self.worked = 0
        self.peak: dict[str, float] = {}

    async def publish(self, js: JetStreamContext, source: Iterator[Sample]) -> None:
        """Publish every sample until it is acknowledged; at most `IN_FLIGHT` at a time."""
        slots = asyncio.Semaphore(IN_FLIGHT)
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            for number, sample in enumerate(source):
                await slots.acquire()
                group.create_task(self._publish_one(js, sample, slots))
                ahead = number / self.rate - (loop.time() - began)
                if ahead > 0.01:
                    await asyncio.sleep(ahead)

    async def _publish_one(
        self, js: JetStreamContext, sample: Sample, slots: asyncio.Semaphore
    ) -> None:
        """The same id is sent again until there is an ack, so that a lost ack costs nothing."""
        subject = f"telemetry.{self.device}.{sample.metric}"
        payload = msgspec.json.encode(sample)
        while True:
            try:
                await js.publish(subject, payload, timeout=2, headers={"Nats-Msg-Id": sample.id})
                break
            except TRANSIENT:
                self.retried += 1
                await asyncio.sleep(RETRY_AFTER_S)
        self.acked += 1
        self.acks.write(sample.id + "\n")
        slots.release()

    async def work(self, js: JetStreamContext) -> None:
        """Local analytics: the peak of every metric, from a durable consumer with acks."""
        consumer = await js.pull_subscribe(
            "",
            durable="local",
            stream=STREAM,
            config=ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=10, max_ack_pending=1000),
        )
        seen: set[str] = set()
        while len(seen) < self.count:
            try:
                batch = await consumer.fetch(200, timeout=2)
            except (*TRANSIENT, ConnectionClosedError):
                await asyncio.sleep(RETRY_AFTER_S)
                continue
            for message in batch:
                sample = msgspec.json.decode(message.data, type=Sample)
                seen.add(sample.id)
                self.peak[sample.metric] = max(sample.value, self.peak.get(sample.metric, 0.0))
                await message.ack()
            self.worked = len(seen)

    async def report(self) -> None:
        """Say how far it is, until cancelled."""
        while True:
            self.say()
            await asyncio.sleep(REPORT_EVERY_S)

    def say(self) -> None:
        """One line of progress."""
        line = {"acked": self.acked, "worked": self.worked, "retried": self.retried}
        print(json.dumps(line), flush=True)


async def run(options: argparse.Namespace) -> None:
    """Do one edge's share."""
    client = await nats.connect(
        options.url,
        name=f"agent {options.device}",
        allow_reconnect=True,
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.1,
        error_cb=_quiet,
    )
    js = client.jetstream()
    with Path(options.acks).open("a", encoding="utf-8") as acks:
        agent = Agent(options.device, options.messages, acks, options.rate)
        data = Path(options.data) if options.data else None
        source = samples(options.device, options.messages, data, options.offset)
        reporting = asyncio.create_task(agent.report())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(agent.publish(js, source))
                group.create_task(agent.work(js))
        finally:
            reporting.cancel()
        agent.say()
    await client.close()


async def _quiet(error: Exception) -> Any:
    """Disconnections are the point of the demo; only other errors are worth a line."""
    if not isinstance(error, OSError):
        print(f"agent: {error}", file=sys.stderr)


def main() -> None:
    """Entry point of the process."""
    parser = argparse.ArgumentParser(description="One edge's publisher and local consumer.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--acks", required=True, help="file for acknowledged ids")
    parser.add_argument("--data", default="", help="folder of recorded series")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--rate", type=float, default=1000.0, help="samples a second")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
