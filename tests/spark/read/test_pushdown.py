"""What filters of Spark leave out stays on the server, by the server's own count."""

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.spark.options import parse_options
from headwater.spark.write.sink import HeadwaterWriter
from tests.spark.conftest import SERVER_KINDS, Server, start_server

MESSAGES = 20_000
SIZE = 1000
LAST = range(MESSAGES - 9, MESSAGES + 1)
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module", params=SERVER_KINDS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server with monitoring and a stream, whose last ten messages have a subject and a time
    of their own."""
    folder = tmp_path_factory.mktemp("watched")
    running = start_server(folder, 'http: "127.0.0.1:-1"', request.param)
    try:
        running.run(make_stream)
        for first, subjects in ((1, ["F.often.x"]), (LAST[0], ["F.rare.a", "F.rare.b"])):
            numbers = range(first, LAST[0] if first == 1 else MESSAGES + 1)
            rows = {
                "subject": [subjects[n % len(subjects)] for n in numbers],
                "payload": [b"%0*d" % (SIZE, n) for n in numbers],
            }
            writer = HeadwaterWriter(parse_options(running.options("F")))
            writer.write(iter([pa.RecordBatch.from_pydict(rows)]))
        yield running
    finally:
        running.process.terminate()
        running.process.wait(10)


async def make_stream(connection: Any, js: Any) -> None:
    await js.add_stream(name="F", subjects=["F.>"], storage="memory")


@pytest.fixture
def sent(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], tuple[int, int]]:
    """Messages and bytes that the server has sent in all."""
    folder = Path(tmp_path_factory.getbasetemp())
    ports = next(
        found
        for path in folder.glob("watched*/*.ports")
        if server.url in (found := json.loads(path.read_text()))["nats"]
    )

    def look() -> tuple[int, int]:
        with urllib.request.urlopen(f"{ports['monitoring'][0]}/varz") as answer:
            found = json.loads(answer.read())
        return found["out_msgs"], found["out_bytes"]

    return look


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (f"sequence >= {LAST[0]}", LAST),
        ("sequence BETWEEN 9001 AND 9010", range(9001, 9011)),
        ("sequence = 7", range(7, 8)),
        ("timestamp >= '{}'", LAST),
        ("subject LIKE 'F.rare.%'", LAST),
        ("subject IN ('F.rare.a', 'F.rare.b')", LAST),
        ("subject = 'F.rare.a' AND sequence > 5", range(LAST[1], MESSAGES + 1, 2)),
    ],
)
def test_what_a_filter_leaves_out_is_not_sent(
    spark: Any, server: Server, sent: Callable, condition: str, wanted: range
) -> None:
    frame = spark.read.format("headwater").options(**server.options("F")).load()
    if "{}" in condition:
        (row,) = frame.where(f"sequence = {LAST[0]}").select("timestamp").collect()
        condition = condition.format(row.timestamp.isoformat())
    before = sent()
    rows = frame.where(condition).collect()
    messages, size = (now - then for now, then in zip(sent(), before, strict=True))
    assert sorted((row.sequence, int(row.payload)) for row in rows) == [(n, n) for n in wanted]
    # Under one in a hundred; a few answers plan the read.
    assert size < MESSAGES * SIZE / 100 and messages < len(wanted) + 100


def test_without_pushdown_all_of_it_is_sent(spark: Any, server: Server, sent: Callable) -> None:
    """The measure tells the difference."""
    spark.conf.set(PUSHDOWN, "false")
    try:
        frame = spark.read.format("headwater").options(**server.options("F")).load()
        before = sent()
        rows = frame.where(f"sequence >= {LAST[0]}").collect()
    finally:
        spark.conf.set(PUSHDOWN, "true")
    assert [row.sequence for row in rows] == list(LAST)
    assert sent()[1] - before[1] > MESSAGES * SIZE
