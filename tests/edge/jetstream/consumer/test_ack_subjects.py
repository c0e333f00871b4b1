"""The numbers in ack subjects, which are written from those of the delivery before."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nats
import pytest

from tests.edge.jetstream.conftest import JetStreamServer
from tests.waiting import WAIT_S

KEPT = 150
EDGES = (1, 8, 90, 99_940, 2**53 - 40, 2**63 - 1000)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server's."""
    folder: Path = tmp_path_factory.mktemp("acks")
    server = JetStreamServer("headwater", folder)
    server.read_on()
    yield server.url
    server.stop()


def nanoseconds(shown: str) -> int:
    """Of a time that the API shows."""
    seconds, _, rest = shown.removesuffix("Z").partition(".")
    whole = int(datetime.fromisoformat(seconds).replace(tzinfo=UTC).timestamp())
    return whole * 1_000_000_000 + int(rest.ljust(9, "0"))


@pytest.mark.parametrize("first", EDGES)
async def test_each_number_is_that_of_its_delivery(url: str, first: int) -> None:
    """Messages before and behind a change of length, with holes, and some of them again."""
    client = await nats.connect(url)
    chance = random.Random(first)

    async def ask(what: str, body: Any) -> Any:
        answer = await client.request(f"$JS.API.{what}", json.dumps(body).encode())
        return json.loads(answer.data)

    name = f"S{first}"
    stream = {"name": name, "subjects": [f"{name}.*"], "storage": "memory", "first_seq": first}
    assert "error" not in await ask(f"STREAM.CREATE.{name}", stream)
    new = []
    for sequence in range(first, first + KEPT):
        wanted = chance.random() < 0.7
        ack = await client.request(f"{name}.{'a' if wanted else 'b'}", b"")
        assert json.loads(ack.data)["seq"] == sequence
        if wanted:
            new.append(sequence)
    times = {}
    for sequence in new:
        found = await ask(f"STREAM.MSG.GET.{name}", {"seq": sequence})
        times[sequence] = nanoseconds(found["message"]["time"])
    config = {"durable_name": "C", "ack_policy": "explicit", "filter_subject": f"{name}.a"}
    made = await ask(f"CONSUMER.DURABLE.CREATE.{name}.C", {"stream_name": name, "config": config})
    assert "error" not in made, made
    inbox = await client.subscribe("_INBOX.x")
    deliveries: Counter[int] = Counter()
    again: list[int] = []
    number = 0
    while new or again:
        number += 1
        await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.C", b"1", reply="_INBOX.x")
        told = await inbox.next_msg(WAIT_S)
        sequence = again.pop(0) if again else new.pop(0)
        deliveries[sequence] += 1
        numbers = (deliveries[sequence], sequence, number, times[sequence], len(new))
        assert told.reply.split(".")[4:] == [str(one) for one in numbers]
        refused = chance.random() < 0.2 and deliveries[sequence] < 12
        await client.publish(told.reply, b"-NAK" if refused else b"+ACK")
        if refused:
            again.append(sequence)
    assert number > len(times)
    await client.close()
