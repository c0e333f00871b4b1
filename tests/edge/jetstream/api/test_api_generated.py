"""Generated requests are answered as nats-server answers them, field by field.

`HEADWATER_EXAMPLES` says how many histories are tried, `HEADWATER_SEED` which; a failure names its
seed, and hypothesis shrinks it.
"""

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import nats
import pytest
from hypothesis import HealthCheck, given, note, seed, settings

from tests.edge.jetstream.api.requests_generated import comparable, counts_by_chance, histories
from tests.edge.jetstream.conftest import BUSY, Client

EXAMPLES = int(os.environ.get("HEADWATER_EXAMPLES", "30"))
BUSY_TRIES = 500
"""The real server says that it is busy for a moment, and for ever where a stream cannot be made."""
SEED = int(os.environ.get("HEADWATER_SEED", "1"))
BEFORE: list[tuple[str, Any]] = [
    ("$JS.API.STREAM.CREATE.O", {"name": "O", "subjects": ["o"], "storage": "memory"}),
    ("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "storage": "memory"}),
    ("s.a", b"1"),
    ("s.b", b"2"),
    ("s.a", b"3"),
    (
        "$JS.API.CONSUMER.CREATE.S.D",
        {"stream_name": "S", "config": {"durable_name": "D", "ack_policy": "explicit"}},
    ),
]


class Pair:
    """Both servers, and a loop to ask them in."""

    def __init__(self, urls: tuple[str, str]) -> None:
        self.loop = asyncio.new_event_loop()
        self.connections = [self.loop.run_until_complete(nats.connect(url)) for url in urls]

    async def play(self, connection: Any, steps: list[tuple[str, Any]]) -> list[Any]:
        client = Client(connection)
        answers = []
        for name in ("S", "O"):
            await client.api(f"STREAM.DELETE.{name}")
        for number, (subject, body) in enumerate(steps):
            answer = await client.request(subject, body)
            for _ in range(BUSY_TRIES):
                if BUSY not in str(answer):
                    break
                answer = await client.request(subject, body)
            answers.append(comparable(answer, counts_by_chance(steps[: number + 1])))
        return answers

    def answers(self, steps: list[tuple[str, Any]]) -> Any:
        """What both servers answer."""
        both = (self.play(connection, steps) for connection in self.connections)

        async def run() -> Any:
            return await asyncio.gather(*both)

        return self.loop.run_until_complete(run())

    def close(self) -> None:
        for connection in self.connections:
            self.loop.run_until_complete(connection.close())
        self.loop.close()


@pytest.fixture(scope="module")
def pair(both_urls: tuple[str, str]) -> Iterator[Pair]:
    found = Pair(both_urls)
    yield found
    found.close()


@seed(SEED)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(history=histories())
def test_generated_requests(pair: Pair, history: list[tuple[str, Any]]) -> None:
    note(f"HEADWATER_SEED={SEED}")
    steps = BEFORE + [(f"$JS.API.{subject}", body) for subject, body in history]
    ours, theirs = pair.answers(steps)
    for step, our, their in zip(steps, ours, theirs, strict=True):
        assert our == their, f"after {step!r}"
