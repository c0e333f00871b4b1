"""What is told on event subjects, and in which order, on both servers."""

import asyncio
import json
import re
from typing import Any

import pytest

from tests.differ.frames import Frame
from tests.differ.pair import JETSTREAM, Pair
from tests.differ.player import Side

OWN = re.compile(r'"(id|timestamp|ack_time|type)": ?("[^"]*"|\d+),?')
CONSUMER = {"durable_name": "C", "ack_policy": "explicit"}
PAST = {"pause_until": "2001-01-01T00:00:00Z"}
PAUSED = {"pause_until": "2100-01-01T00:00:00Z"}
QUIET_S = 0.1


@pytest.fixture(scope="module")
def ports() -> Any:
    with Pair(JETSTREAM) as pair:
        yield pair.ports


class Listener(Side):
    """One server's connection, which hears what is told of consumers, too."""

    async def open(self, port: int) -> None:
        await super().open(port)
        self.send(b"SUB $JS.EVENT.ADVISORY.CONSUMER.> 99\r\n")

    async def asked(self, subject: str, body: object = None) -> list[Frame]:
        """What comes of one request, until nothing more does."""
        payload = body if isinstance(body, bytes) else b""
        payload = json.dumps(body).encode() if isinstance(body, dict) else payload
        self.publish(subject, f"{self.name}i.1", payload, [])
        while True:
            self.heard.clear()
            try:
                async with asyncio.timeout(QUIET_S if self.seen else 2):
                    await self.heard.wait()
            except TimeoutError:
                seen, self.seen = self.seen, []
                return seen


async def told(port: int, steps: list[tuple[str, object]]) -> list[list[str]]:
    """Subjects and advisories of each step, in order. `ACK` is the last delivery's."""
    side = Listener("S", "")
    await side.open(port)
    found, ack = [], ""
    try:
        await side.asked("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        for subject, body in steps:
            frames = await side.asked(ack if subject == "ACK" else subject, body)
            for frame in frames:
                ack = next((word for word in frame.words if word.startswith("$JS.ACK.")), ack)
            found.append([
                f"{frame.words[0]} {OWN.sub('', frame.payload.decode())}".replace(" ", "")
                if frame.words[0].startswith("$JS.EVENT") else frame.words[0]
                for frame in frames
            ])
    finally:
        await side.asked("$JS.API.STREAM.DELETE.S")
        await side.close()
    return found


MADE = ("$JS.API.CONSUMER.CREATE.S.C", {"stream_name": "S", "config": CONSUMER})
PULL = ("$JS.API.CONSUMER.MSG.NEXT.S.C", b"1")
STEPS: dict[str, list[tuple[str, object]]] = {
    "pauses": [MADE, *(("$JS.API.CONSUMER.PAUSE.S.C", body) for body in (
        PAUSED, PAUSED, {}, {}, PAST, PAST, PAUSED, PAST, {}))],
    "the end of a message": [MADE, *(step for body in (b"+TERM", b"+TERM it is bad", b"-NAK") for
        step in (("s", b"x"), PULL, ("ACK", body)))],
}  # fmt: skip


def compared(ports: tuple[int, int], name: str) -> list[list[list[str]]]:
    """What both told, but of the first step."""
    both = [asyncio.run(told(port, STEPS[name])) for port in ports]
    assert any("ADVISORY" in line for lines in both[1][1:] for line in lines)
    return [lines[1:] for lines in both]


def test_an_answer_goes_before_what_is_told_of_a_message(ports: tuple[int, int]) -> None:
    ours, theirs = compared(ports, "the end of a message")
    assert ours == theirs


def test_each_pause_that_begins_or_ends_is_told(ports: tuple[int, int]) -> None:
    """Whether before or behind the answer is chance there."""
    ours, theirs = compared(ports, "pauses")
    assert list(map(sorted, ours)) == list(map(sorted, theirs))
