"""Parts of a rollup that readers make: as plain Python has it, and bounded."""

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from headwater.spark.jobs.window_source import FIRST_US, HELD, LAST_US, GatheredParts
from tests.spark.jobs.test_rollup import START

MINUTE = 60_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("us", tz="UTC")
MESSAGES = pa.schema(
    [
        ("_stream", pa.string()), ("_sequence", pa.int64()), ("_timestamp", TIME),
        ("device", pa.string()), ("metric", pa.string()), ("t_us", pa.int64()), ("ts", TIME),
        ("value", pa.float64()), ("id", pa.string()), ("_corrupt_record", pa.string()),
    ]
)  # fmt: skip
NEWEST = pa.struct([("t_us", pa.int64()), ("sequence", pa.int64()), ("value", pa.float64())])
PARTS = pa.schema(
    [
        ("device", pa.string()), ("metric", pa.string()), ("window_us", pa.int64()),
        ("count", pa.int64()), ("min", pa.float64()), ("max", pa.float64()), ("sum", pa.float64()),
        ("newest", NEWEST), ("first_seq", pa.int64()), ("last_seq", pa.int64()),
        ("stream", pa.string()), ("ids", pa.int64()), ("valid", pa.int64()),
        ("repeats", pa.int64()),
    ]
)  # fmt: skip


def message(sequence: int, t_us: int | None = None, **more: Any) -> dict[str, Any]:
    arrived = EPOCH + timedelta(microseconds=START + sequence)
    row = {"_stream": "S", "_sequence": sequence, "_timestamp": arrived, "t_us": t_us}
    return row | {"device": "d", "metric": "m", "value": 1.0} | more


def gathered(batches: list[list[dict[str, Any]]]) -> tuple[list[dict], list[dict]]:
    """Parts and proofs of one partition."""
    parts = GatheredParts(MINUTE, PARTS)
    found = []
    for rows in batches:
        found += list(parts.add(pa.RecordBatch.from_pylist(rows, schema=MESSAGES)))
    found += list(parts.rest())
    assert all(batch.schema == PARTS for batch in found)
    rows = [row for batch in found for row in batch.to_pylist()]
    return [row for row in rows if row["device"]], [row for row in rows if not row["device"]]


def summed(parts: list[dict]) -> dict[tuple, tuple]:
    """Parts of a window together, as Spark merges them."""
    windows: dict[tuple, list[dict]] = defaultdict(list)
    for part in parts:
        windows[part["device"], part["metric"], part["window_us"]].append(part)
    return {
        key: (
            sum(one["count"] for one in each), min(one["min"] for one in each),
            max(one["max"] for one in each), sum(one["sum"] for one in each),
            max((one["newest"]["t_us"], one["newest"]["sequence"], one["newest"]["value"])
                for one in each),
            min(one["first_seq"] for one in each), max(one["last_seq"] for one in each),
        )
        for key, each in windows.items()
    }  # fmt: skip


def test_parts_are_what_plain_python_adds_up() -> None:
    chance = random.Random(3)
    rows, truth = [], defaultdict(list)
    for sequence in range(1, 4001):
        # Few times, so that some are equal; before 1970, too.
        t_us = chance.choice((0, START)) + chance.randrange(-200, 200) * 1_000_000
        device, value = f"d{chance.randrange(3)}", float(chance.randrange(-9, 9))
        rows.append(message(sequence, t_us, device=device, value=value))
        truth[device, "m", t_us // MINUTE * MINUTE].append((t_us, sequence, value))
    parts, (proof,) = gathered([rows[at : at + 700] for at in range(0, 4000, 700)])
    assert len(parts) == len(truth)
    assert summed(parts) == {
        key: (
            len(each), min(one[2] for one in each), max(one[2] for one in each),
            sum(one[2] for one in each), max(each), min(one[1] for one in each),
            max(one[1] for one in each),
        )
        for key, each in truth.items()
    }  # fmt: skip
    assert (proof["stream"], proof["first_seq"], proof["last_seq"]) == ("S", 1, 4000)
    assert (proof["count"], proof["valid"], proof["ids"], proof["repeats"]) == (4000, 4000, 0, 0)


@pytest.mark.parametrize(
    ("more", "valid"),
    [
        ({}, True),
        ({"id": "x"}, True),
        ({"device": None}, False),
        ({"metric": None}, False),
        ({"value": None}, False),
        ({"_corrupt_record": "text"}, False),
        ({"_corrupt_record": "text", "t_us": 5}, True),
        ({"_corrupt_record": "text", "ts": EPOCH}, True),
        ({"t_us": FIRST_US}, True),
        ({"t_us": FIRST_US - 1}, False),
        ({"t_us": LAST_US}, True),
        ({"t_us": LAST_US + 1}, False),
        ({"t_us": 2**63 - 1}, False),
        ({"t_us": -(2**63)}, False),
    ],
)
def test_what_is_telemetry(more: dict[str, Any], valid: bool) -> None:
    parts, (proof,) = gathered([[message(7) | more]])
    assert (len(parts), proof["valid"], proof["count"]) == (valid, valid, 1)
    assert proof["ids"] == ("id" in more)


def test_a_time_is_that_of_the_message_or_of_its_arrival() -> None:
    moment = EPOCH + timedelta(seconds=90)
    for given, wanted in (
        ({"t_us": MINUTE, "ts": moment}, MINUTE),
        ({"ts": moment}, 90_000_000),
        ({}, START + 7),
    ):
        (part,), _ = gathered([[message(7) | given]])
        assert part["newest"] == {"t_us": wanted, "sequence": 7, "value": 1.0}
        assert part["window_us"] == wanted // MINUTE * MINUTE


def test_rows_that_come_twice_are_told() -> None:
    _, (proof,) = gathered([[message(n) for n in (1, 2, 3)], [message(n) for n in (3, 4, 2, 5)]])
    assert (proof["count"], proof["repeats"]) == (7, 2)
    assert (proof["first_seq"], proof["last_seq"]) == (1, 5)


@pytest.mark.parametrize("windows", [10, 1 << 40])
def test_what_a_reader_holds_is_bounded(windows: int) -> None:
    """However many messages there are, and if each has a window of its own."""
    size, batches = 10_000, 30
    parts = GatheredParts(MINUTE, PARTS)
    most, given = 0, 0
    for at in range(1, size * batches, size):
        numbers = range(at, at + size)
        rows = {
            "_stream": ["S"] * size,
            "_sequence": numbers,
            "_timestamp": [EPOCH] * size,
            "device": ["d"] * size,
            "metric": ["m"] * size,
            "t_us": [n % windows * MINUTE for n in numbers],
            "value": [1.0] * size,
        }
        nulls = {name: [None] * size for name in MESSAGES.names if name not in rows}
        batch = pa.RecordBatch.from_pydict({**rows, **nulls}, schema=MESSAGES)
        given += sum(each.num_rows for each in parts.add(batch))
        most = max(most, parts.held)
    last = sum(each.num_rows for each in parts.rest())
    assert most < HELD
    if windows == 10:
        assert (given, last) == (0, 10 + 1)
    else:
        assert given + last == size * batches + 1
