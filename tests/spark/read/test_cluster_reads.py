"""Reads from a hub of three nodes: any node answers, and a reader outlives the stream's leader."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from nats.errors import Error

from headwater.spark.read import block_fetch
from headwater.spark.read.account import RangeReport, ReadAccount
from headwater.spark.source import HeadwaterSource
from tests.spark.conftest import EVERY, Server, end

MESSAGES = 1500
WINDOW = 100
PADDING = bytes(8000)
"""More than fits into what is asked for at once, so that a read is in the middle for a while."""

PATHS = ["block", "wire"]
IN_SPARK = {"batch": PATHS, "query": PATHS} if EVERY else {"batch": ["block"], "query": ["wire"]}
"""The reader takes both paths without Spark, and Spark takes each of them once."""


async def acked(js: Any, name: str, i: int) -> None:
    """Publish until it is acked: routes that are new may be given up for others, and a publish
    with them."""
    while True:
        with contextlib.suppress(Error):
            headers = {"Nats-Msg-Id": str(i)}
            return await js.publish(f"{name}.{i % 7}", b"%d:" % i + PADDING, 5, headers=headers)


def fill(hub: list[Server], replicas: int, name: str = "S") -> int:
    """A stream with messages; the number of the node that leads it."""

    async def work(connection: Any, js: Any) -> int:
        info = None
        while info is None:
            with contextlib.suppress(Error):
                info = await js.add_stream(
                    name=name, subjects=[f"{name}.>"], num_replicas=replicas
                )
        for first in range(0, MESSAGES, WINDOW):
            await asyncio.gather(
                *(acked(js, name, i) for i in range(first, min(first + WINDOW, MESSAGES)))
            )
        return int((await js.stream_info(name)).cluster.leader[1:])

    return hub[0].run(work)


def rows_of(options: dict[str, str]) -> list[tuple]:
    source = HeadwaterSource(options)
    reader = source.reader(source.schema())
    return [
        tuple(row.values())
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


def test_every_node_gives_all_rows(hub: list[Server]) -> None:
    for replicas in (1, 3):
        name = f"OF{replicas}"
        fill(hub, replicas, name)
        found = [
            rows_of(node.options(name, readPath=path)) for node in hub for path in ("block", "wire")
        ]
        assert len(found[0]) == MESSAGES
        assert all(rows == found[0] for rows in found)


@pytest.mark.parametrize("path", PATHS)
def test_a_read_goes_on_when_the_leader_is_killed(
    hub: list[Server], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is to another node: it stays, and the reader notices that nobody reads on."""
    monkeypatch.setattr(block_fetch, "SILENCE", 3600.0)
    leader = fill(hub, 3)
    servers = ",".join(node.url for node in hub[leader + 1 :] + hub[: leader + 1])
    options = {"servers": servers, "stream": "S", "readPath": path, "partitions": "2"}
    source = HeadwaterSource(options | {"batchBytes": "65536", "retryTimeout": "60"})
    reader = source.reader(source.schema())
    sequences = []
    for part in reader.partitions():
        for batch in reader.read(part):
            if not sequences:
                end(hub[leader])
            sequences += batch.column("sequence").to_pylist()
    assert sequences == list(range(1, MESSAGES + 1))


@pytest.mark.parametrize("path", IN_SPARK["batch"])
def test_a_batch_counts_every_row_when_the_leader_is_killed(
    hub: list[Server], spark: Any, path: str
) -> None:
    """Rows come partition by partition; the leader ends after the first ones."""
    leader = fill(hub, 3)
    options = {"servers": ",".join(node.url for node in hub), "stream": "S", "readPath": path}
    options |= {"partitions": "6", "columns": "sequence,subject"}
    account = ReadAccount(spark)
    frame = spark.read.format("headwater").options(**options, **account.options).load()
    sequences = []
    for row in frame.toLocalIterator():
        if not sequences:
            end(hub[leader])
        sequences.append(row.sequence)
    assert sequences == list(range(1, MESSAGES + 1))
    assert account.total == RangeReport(MESSAGES, MESSAGES, 0, 0, 0)


@pytest.mark.parametrize("path", IN_SPARK["query"])
def test_a_query_counts_every_row_when_the_leader_is_killed(
    hub: list[Server], spark: Any, path: str, tmp_path: Path
) -> None:
    """The leader ends after the first microbatch, and the query goes on by the other nodes."""
    leader = fill(hub, 3)
    options = {"servers": ",".join(node.url for node in hub), "stream": "S", "readPath": path}
    options |= {"maxMsgsPerTrigger": "400", "partitions": "2", "columns": "sequence"}
    found: list[int] = []

    def keep(rows: Any, number: int) -> None:
        found.extend(row.sequence for row in rows.collect())
        if number == 0:
            end(hub[leader])

    frame = spark.readStream.format("headwater").options(**options).load()
    writer = frame.writeStream.foreachBatch(keep)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert sorted(found) == list(range(1, MESSAGES + 1))
