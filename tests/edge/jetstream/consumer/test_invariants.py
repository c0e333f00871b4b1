"""Values that cannot be are planted, and neither answered nor written."""

from collections.abc import Callable
from typing import Any

import pytest

from headwater.edge.jetstream.stream.stream_info import stream_state
from headwater.edge.storage.format.errors import InvariantBroken
from tests.edge.jetstream.consumer.test_consumer_recovery import stable


def told(caplog: pytest.LogCaptureFixture) -> str:
    """The log, tracebacks included."""
    return caplog.text


async def test_an_ack_without_a_safe_sequence_is_not_sent(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    stream = await world.stream()
    inbox = world.listen("_INBOX.ack")
    stream.answers.owe_text(b"_INBOX.ack", 0, b"")
    world.kernel.turn()
    assert not inbox and "was about to be acknowledged" in told(caplog)
    world.send("a.1", "1", "_INBOX.ack")
    await world.until(lambda: bool(inbox))
    assert inbox[0].payload == b'{"stream":"S","seq":1}', "the next publisher gets its answer"


@pytest.mark.parametrize(
    ("field", "value"), [("messages", 9), ("first_seq", 7), ("messages", 0)]
)
async def test_a_state_that_cannot_be_is_not_answered(
    world: Any, field: str, value: int
) -> None:
    stream = await world.stream()
    world.publish(3)
    assert stream_state(stream).messages == 3
    setattr(stream.store, field, value)
    with pytest.raises(InvariantBroken, match="stream 'S' cannot have"):
        stream_state(stream)


def plant_unknown(consumer: Any) -> None:
    consumer.pending.put(99, 2, 0, 1)


def plant_undelivered(consumer: Any) -> None:
    first = consumer.pending.entries()[0][0]
    consumer.pending.pop(first)
    consumer.pending.put(first, 1, 0, 0)


def plant_redelivered(consumer: Any) -> None:
    consumer.pending.redelivered = 12


def plant_floor(consumer: Any) -> None:
    consumer.go_on((3, 3), (2, 9), [], {})


PLANTED = {
    plant_unknown: "message 99 is pending, delivered 3",
    plant_undelivered: "message 1 is pending and was never delivered",
    plant_redelivered: "12 of",
    plant_floor: "ack floor 9 of deliveries up to 3",
}


@pytest.mark.parametrize("plant", PLANTED)
async def test_progress_that_cannot_be_is_neither_written_nor_answered(
    disk_worlds: Callable[[], Any],
    caplog: pytest.LogCaptureFixture,
    plant: Callable[[Any], None],
) -> None:
    world = disk_worlds()
    await world.stream(storage="file")
    world.publish(5)
    await world.consumer(ack_policy="explicit")
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "3")
    await world.until(lambda: len(inbox) == 3)
    before = stable(await world.info())
    consumer = world.js.streams["S"].consumers["C"]
    plant(consumer)
    answer = await world.info()
    assert "delivered" not in answer and answer["error"]["code"] == 500
    world.send(inbox[1].reply)
    assert f"progress of consumer 'C' of stream 'S' is not saved: {PLANTED[plant]}" in told(caplog)
    world.send(inbox[2].reply)
    assert told(caplog).count("is not saved") == 1, "told once, not in every turn"
    world = disk_worlds()
    assert stable(await world.info()) == before, "a start finds what was written before"


async def test_an_ack_of_all_cannot_raise_the_floor_above_what_was_delivered(world: Any) -> None:
    await world.stream()
    world.publish(5)
    await world.consumer(ack_policy="all")
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "3")
    await world.until(lambda: len(inbox) == 3)
    parts = inbox[1].reply.split(".")
    parts[6] = "4000000"
    world.send(".".join(parts))
    info = await world.info()
    assert info["ack_floor"]["stream_seq"] == 2
    assert info["ack_floor"]["consumer_seq"] <= info["delivered"]["consumer_seq"] == 3


async def test_a_block_never_reaches_beyond_the_stream(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    stream = await world.stream()
    world.publish(3)
    blocks = world.listen("_INBOX.blocks")
    request = '{"seq": 1, "end": 100}'
    world.send("$JS.API.BLOCK.GET.S", request, "_INBOX.blocks")
    await world.until(lambda: len(blocks) == 1)
    assert int.from_bytes(blocks[0].payload[16:24], "little") == 4
    stream.store.committed = 50
    world.send("$JS.API.BLOCK.GET.S", request, "_INBOX.blocks")
    await world.until(lambda: "would reach 50" in told(caplog))
    assert len(blocks) == 1
