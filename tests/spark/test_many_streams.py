"""Many streams by pattern inside Spark: they come and go while a streaming query runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until_seen

QUERY_S = 250
"""Ample for a streaming query of a few rows, beside other work."""


def numbered(name: str, count: int) -> list[tuple[str, bytes, None]]:
    return [(f"{name}.{n % 2}", b"%d" % n, None) for n in range(count)]


def publish(server: Any, subject: str, count: int) -> None:
    async def work(connection: Any, js: Any) -> None:
        for _ in range(count):
            await js.publish(subject, b"x")

    server.run(work)


def test_a_batch_over_a_pattern(spark: Any, server: Any, fill: Callable) -> None:
    for n in range(1, 4):
        fill(f"LOT-{n}", numbered(f"LOT-{n}", 5 * n))
    fill("ANY", numbered("ANY", 9))
    reader = spark.read.format("headwater").option("servers", server.url)
    frame = reader.option("streams", "LOT-*").load()
    counts = {row["stream"]: row["count"] for row in frame.groupBy("stream").count().collect()}
    assert counts == {"LOT-1": 5, "LOT-2": 10, "LOT-3": 15}
    with pytest.raises(Exception, match="no stream matches LOT-x"):
        reader.option("streams", "LOT-x*").load().count()
    bounds = {"starting": '{"LOT-1": 2, "LOT-3": 14}', "ending": '{"LOT-1": 4}'}
    frame = reader.option("streams", "LOT-*").options(**bounds).load()
    rows = frame.where("sequence > 1").collect()
    found = sorted((row["stream"], row["sequence"]) for row in rows)
    wanted = [("LOT-1", n) for n in (2, 3, 4)] + [("LOT-2", n) for n in range(2, 11)]
    assert found == [*wanted, ("LOT-3", 14), ("LOT-3", 15)]


def test_the_cores_of_the_session_bound_the_tasks_of_small_streams(
    spark: Any, server: Any, fill: Callable
) -> None:
    for n in range(9):
        fill(f"CORE-{n}", numbered(f"CORE-{n}", 1))
    reader = spark.read.format("headwater").options(servers=server.url, streams="CORE-*")

    def tasks(**more: str) -> int:
        frame = reader.options(**more).load()
        assert frame.count() == 9
        return frame.rdd.getNumPartitions()

    # The session of the tests has two cores.
    assert tasks() == 8
    assert tasks(cores="1") == 4
    assert tasks(cores="3") == 9


class Fleet:
    """A query over the streams `FLEET-*` into a folder, from one checkpoint."""

    def __init__(self, spark: Any, server: Any, folder: Path) -> None:
        self._spark, self._server, self._folder = spark, server, folder

    def start(self, now: bool = False, **more: str) -> Any:
        reader = self._spark.readStream.format("headwater").options(**more)
        frame = reader.options(servers=self._server.url, streams="FLEET-*").load()
        write = frame.select("stream", "sequence").writeStream.format("parquet")
        write = write.option("checkpointLocation", str(self._folder / "checkpoint"))
        if now:
            write = write.trigger(availableNow=True)
        return write.start(str(self._folder / "out"))

    def rows(self) -> list[tuple[str, int]]:
        found = self._spark.read.parquet(str(self._folder / "out")).collect()
        return sorted((row["stream"], row["sequence"]) for row in found)


def wait_for_rows(query: Any, rows: int) -> None:
    def all_there() -> bool:
        assert query.exception() is None
        return sum(part["numInputRows"] for part in query.recentProgress) == rows

    until_seen(all_there, f"{rows} rows were read", QUERY_S)


@pytest.mark.usefixtures("one_server")
def test_streams_come_and_go_while_a_query_runs(
    spark: Any, server: Any, fill: Callable, tmp_path: Path
) -> None:
    fleet = Fleet(spark, server, tmp_path)
    # The query begins before the first stream is there.
    running = fleet.start(maxMsgsPerTrigger="4")
    fill("FLEET-1", numbered("FLEET-1", 10))
    wait_for_rows(running, 10)
    fill("FLEET-2", numbered("FLEET-2", 3))
    publish(server, "FLEET-1.0", 1)
    wait_for_rows(running, 14)
    assert all(part["numInputRows"] <= 4 for part in running.recentProgress)
    running.stop()
    # One stream appears and one grows while no driver is there.
    fill("FLEET-3", numbered("FLEET-3", 5))
    publish(server, "FLEET-2.0", 2)
    again = fleet.start(now=True)
    assert again.awaitTermination(QUERY_S)
    expected = {"FLEET-1": 11, "FLEET-2": 5, "FLEET-3": 5}
    every = [(name, n) for name, last in expected.items() for n in range(1, last + 1)]
    assert fleet.rows() == every

    server.run(lambda connection, js: js.delete_stream("FLEET-2"))
    publish(server, "FLEET-1.0", 1)
    with pytest.raises(Exception, match="'FLEET-2' does not exist.*failOnDataLoss=false"):
        fleet.start(now=True).awaitTermination(QUERY_S)
    assert fleet.start(now=True, failOnDataLoss="false").awaitTermination(QUERY_S)
    assert fleet.rows() == sorted([*every, ("FLEET-1", 12)])
    fill("FLEET-2", numbered("FLEET-2", 1))
    with pytest.raises(Exception, match="'FLEET-2' was deleted and created again"):
        fleet.start(now=True).awaitTermination(QUERY_S)


def test_the_progress_tells_the_backlog_of_all_streams(
    spark: Any, server: Any, fill: Callable, tmp_path: Path
) -> None:
    for name in ("FLEET-7", "FLEET-8"):
        fill(name, numbered(name, 10))
    query = Fleet(spark, server, tmp_path).start(now=True, maxMsgsPerTrigger="4")
    assert query.awaitTermination(QUERY_S)
    import json

    def sequences(text: Any) -> dict[str, int]:
        offset = json.loads(text) if isinstance(text, str) else text
        return {name: place["sequence"] for name, place in offset["streams"].items()}

    first = query.recentProgress[0]["sources"][0]
    assert sequences(first["endOffset"]) == {"FLEET-7": 2, "FLEET-8": 2}
    assert sequences(first["latestOffset"]) == {"FLEET-7": 10, "FLEET-8": 10}
