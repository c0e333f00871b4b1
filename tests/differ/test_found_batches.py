"""Atomic batches with headers that alone would be refused, or mean something: on both servers."""

import asyncio
from typing import Any

import pytest

from tests.differ.histories import Step, api
from tests.differ.pair import JETSTREAM, Pair
from tests.differ.player import Player

AT = ("Nats-Schedule", "@at 2100-01-01T00:00:00Z")
SOON = ("Nats-Schedule", "@every 1s")
TO = ("Nats-Schedule-Target", "%.t")
END = [("Nats-Scheduler", "%.a"), ("Nats-Schedule-Next", "purge")]
INFO = api("STREAM.INFO.%", {"subjects_filter": ">"})
COUNTERS = {"allow_msg_counter": True}
SCHEDULES = {"allow_msg_schedules": True}
ROLLUPS = {"allow_rollup_hdrs": True}

Part = tuple[str, list[tuple[str, str]], str]


def step(amount: str, leaf: str = "a", payload: str = "") -> Part:
    return leaf, [("Nats-Incr", amount)], payload


def part(leaf: str, *headers: tuple[str, str]) -> Part:
    return leaf, list(headers), "m"


def batch(config: dict[str, Any], *parts: Part, before: tuple[Step, ...] = ()) -> list[Step]:
    """A stream, a batch, and all that is then stored."""
    steps = [api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"], "allow_atomic": True,
                                     **config}), *before]  # fmt: skip
    for number, (leaf, headers, payload) in enumerate(parts, 1):
        sent = [("Nats-Batch-Id", "q"), ("Nats-Batch-Sequence", str(number)), *headers]
        own = {key for key, _ in headers}
        sent = [one for at, one in enumerate(sent) if at > 1 or one[0] not in own]
        if number == len(parts) and "Nats-Batch-Commit" not in own:
            sent.append(("Nats-Batch-Commit", "1"))
        steps.append({"do": "publish", "subject": f"%.{leaf}", "headers": sent, "payload": payload})
    gets = [api("STREAM.MSG.GET.%", {"seq": seq}) for seq in (1, 2, 3)]
    return [*steps, INFO, *gets]


TOO_HIGH = [("Nats-Required-Api-Level", "99")]
FOUR: Step = {"do": "publish", "subject": "%.a", "headers": [("Nats-Incr", "4")], "payload": ""}
BATCHES: dict[str, list[Step]] = {
    "counters add within a batch": batch(COUNTERS, step("1"), step("5"), step("2", "b")),
    "counters go on": batch(COUNTERS, step("1"), step("-9"), before=(FOUR,)),
    "a counter without a step": batch(COUNTERS, ("a", [], ""), step("5")),
    "a counter with a payload": batch(COUNTERS, step("1", payload="x"), step("5")),
    "a counter with a bad step": batch(COUNTERS, step("x"), step("5")),
    "a step where there are no counters": batch({}, step("1"), part("a")),
    "schedules": batch(SCHEDULES, part("a", AT, TO), part("b", AT, TO)),
    "a schedule that fires": [*batch(SCHEDULES, part("a", SOON, TO), part("b")),
                              {"do": "wait", "seconds": 1.5}],
    "a schedule where there are none": batch({}, part("a", AT, TO), part("b")),
    "a bad schedule": batch(SCHEDULES, part("a", ("Nats-Schedule", "x"), TO), part("b")),
    "a schedule without target": batch(SCHEDULES, part("a", AT), part("b")),
    "a schedule that its own message ends": batch(SCHEDULES, part("a", *END), part("b")),
    "a schedule twice": batch(SCHEDULES, part("a", AT, TO), part("a", AT, TO)),
    "what only a copy may carry": batch({}, part("a", ("Nats-Stream-Source", "x 1")), part("b")),
    "a bad TTL where there is none": batch({}, part("a", ("Nats-TTL", "x")), part("b")),
    "an expected id": batch({}, part("a", ("Nats-Expected-Last-Msg-Id", "x")), part("b")),
    "a roll-up of the batch": batch(ROLLUPS, part("a"), part("a", ("Nats-Rollup", "sub"))),
    "a roll-up beside": batch(ROLLUPS, part("a"), part("b", ("Nats-Rollup", "sub"))),
    "a roll-up of all": batch(ROLLUPS, part("a", ("Nats-Rollup", "all")), part("b")),
    "a roll-up in capitals": batch(ROLLUPS, part("a", ("Nats-Rollup", "ALL")), part("b")),
    "a late roll-up of all": batch(ROLLUPS, part("a"), part("b", ("Nats-Rollup", "all"))),
    "a level that is not there": batch({}, part("a", *TOO_HIGH), part("b")),
    "a level at the end": batch({}, part("a"), part("b", *TOO_HIGH)),
    "a level that is there": batch({}, part("a", ("Nats-Required-Api-Level", "1")), part("b")),
    "a batch that ends before it began": batch({}, part("a", ("Nats-Batch-Commit", "eob"))),
    "far in a batch that was never begun": batch(
        {}, part("a", ("Nats-Batch-Id", "z"), ("Nats-Batch-Sequence", "1001"))),
    **{f"a last sequence that the batch makes, {seq}": batch({}, part("a"), part(
        "b", ("Nats-Expected-Last-Sequence", seq))) for seq in ("0", "1", "2", "x")},
    **{f"a last sequence of a subject of the batch, {seq}": batch({}, part("a"), part(
        "a", ("Nats-Expected-Last-Subject-Sequence", seq))) for seq in ("0", "1", "x")},
    **{f"a last sequence of {other} for a subject beside": batch(
        {}, part("a"), part("b", ("Nats-Expected-Last-Subject-Sequence", "0"),
                            ("Nats-Expected-Last-Subject-Sequence-Subject", other)))
        for other in ("%.a", "%.c", "%.*", "x")},
    "a subject without its last sequence": batch(
        {}, part("a", ("Nats-Expected-Last-Subject-Sequence-Subject", "%.a")), part("b")),
    "the same last sequence expected twice": batch({}, *(
        part(leaf, ("Nats-Expected-Last-Subject-Sequence", "0"),
             ("Nats-Expected-Last-Subject-Sequence-Subject", "%.c")) for leaf in ("a", "b"))),
    "two faults": batch({}, part("a", ("Nats-Incr", "1"), ("Nats-TTL", "x")), part("b")),
}  # fmt: skip


@pytest.fixture(scope="module")
def ports() -> Any:
    with Pair(JETSTREAM) as pair:
        yield pair.ports


@pytest.mark.parametrize("name", BATCHES)
def test_batch(ports: tuple[int, int], name: str) -> None:
    result = asyncio.run(Player(ports).play(BATCHES[name]))
    assert result is None, f"step {result[0]}\nours   {result[1]}\ntheirs {result[2]}"
