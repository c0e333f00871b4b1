"""A stage that Spark submits again, as it lost what a shuffle wrote, while its tasks go on."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from headwater.spark.options import SourceOptions, parse_options
from headwater.spark.wire.connection import Connection
from headwater.spark.write.ledger import STREAM as LEDGER
from headwater.spark.write.publisher import ID_HEADER, Publisher
from tests.slow import slow
from tests.spark.conftest import SESSION_SECONDS
from tests.waiting import until_seen

ROWS = 3000
"""Of each task; half of them are more than Spark and the writer keep at hand."""
SECONDS = 200.0


def rows_of(task: int, first: int, end: int) -> Iterator[pa.RecordBatch]:
    for start in range(first, end, 100):
        numbers = range(start, start + 100)
        yield pa.RecordBatch.from_pydict(
            {
                "subject": [f"ANEW.{task}"] * len(numbers),
                "payload": [b"%d" % n + b"." * 1000 for n in numbers],
                "id": [f"{task}:{n}" for n in numbers],
            }
        )


def given(options: SourceOptions, marks: Path) -> Callable:
    """What each task writes. The first attempt at task 0 stands still in the middle, behind the
    loss of the shuffle's files, until another one has written the whole of its rows."""
    stood, lost, ended = marks / "stood", marks / "lost", marks / "ended"

    def written() -> int:
        """How many messages of task 0 the target has."""
        with Connection(options.endpoint) as connection:
            answer = connection.api(
                f"{options.api_prefix}.STREAM.INFO.ANEW", {"subjects_filter": "ANEW.0"}
            )
        return int((answer["state"].get("subjects") or {}).get("ANEW.0", 0))

    def forgotten() -> int:
        """Whether the target takes the last id of task 0 for a new one."""
        with Publisher(options) as publisher:
            publisher.publish("ANEW.again", b"", {ID_HEADER: f"0:{ROWS - 1}"})
            publisher.flush()
        return publisher.published

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        task = TaskContext.get().partitionId()
        if task == 1:
            # Task 2 gets its place, and finds that the files are gone.
            until_seen(lost.exists, "the files are gone", SECONDS)
        if task == 2:
            until_seen(ended.exists, "the first attempt has gone on", SECONDS)
        if task or stood.exists():
            yield from rows_of(task, 0, ROWS)
            return
        stood.touch()
        yield from rows_of(task, 0, ROWS // 2)
        until_seen(written, "the first half is on its way", SECONDS)
        for folder in os.environ["SPARK_LOCAL_DIRS"].split(","):
            for path in Path(folder).glob("*/shuffle_*"):
                path.unlink()
        lost.touch()
        until_seen(lambda: written() == ROWS, "the second attempt has written", SECONDS)
        until_seen(forgotten, "the target has forgotten ids", SECONDS)
        try:
            yield from rows_of(task, ROWS // 2, ROWS)
        finally:
            ended.touch()

    return write


@slow
@pytest.mark.timeout(2 * SESSION_SECONDS)
def test_an_attempt_of_before_publishes_nothing_more(
    server: Any, fill: Callable, spark: Any, tmp_path: Path
) -> None:
    """The second one counts as a first attempt for Spark."""
    fill("ANEW", [], duplicate_window=0.1)
    options = parse_options(server.options("ANEW"))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        rows = spark.range(3).repartition(3).mapInArrow(
            given(options, tmp_path), "subject string, payload binary, id string"
        )
        write = rows.write.format("headwater").options(**server.options("ANEW", writeId="anew"))
        write.mode("append").save()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert (tmp_path / "ended").exists()
    found = Counter(server.run(ids))
    assert found == Counter(f"{task}:{n}" for task in range(3) for n in range(ROWS))
    server.run(lambda connection, js: js.delete_stream(LEDGER))


async def ids(connection: Any, js: Any) -> list[str]:
    """Those of all messages that the tasks have written."""
    wanted = (await js.stream_info("ANEW")).state.messages
    subscription = await js.subscribe("ANEW.>", ordered_consumer=True)
    messages = [await subscription.next_msg(20) for _ in range(wanted)]
    return [each.headers[ID_HEADER] for each in messages if each.subject != "ANEW.again"]
