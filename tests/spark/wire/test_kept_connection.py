"""Small reads of a process share one connection, as long as it is worth anything."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.spark.errors import StreamRecreatedError
from headwater.spark.source import HeadwaterSource
from headwater.spark.wire import kept_connection as kept
from tests.spark.conftest import Server, start_server
from tests.spark.cutting_proxy import CuttingProxy

COUNT = 40
TASKS = 4


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Server]:
    running = start_server(tmp_path, kind="headwater")
    stored(running, "S", COUNT)
    yield running
    kept.forget()
    running.process.terminate()
    running.process.wait(10)


def stored(node: Server, stream: str, count: int, size: int = 10) -> None:
    async def work(_: Any, js: Any) -> None:
        await js.add_stream(name=stream, subjects=[stream])
        for number in range(count):
            await js.publish(stream, b"%d" % number + bytes(size))

    node.run(work)


def planned(port: int | str, stream: str = "S", **more: str) -> tuple[Any, list[Any]]:
    options = {"servers": f"nats://127.0.0.1:{port}", "stream": stream, "readPath": "block"}
    source = HeadwaterSource(options | {"partitions": str(TASKS)} | more)
    reader = source.reader(source.schema())
    return reader, reader.partitions()


def sequences(reader: Any, parts: list[Any]) -> list[int]:
    return [
        row["sequence"]
        for part in parts
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


def test_small_ranges_share_a_connection(node: Server) -> None:
    port = int(node.url.rpartition(":")[2])
    with CuttingProxy(port, cuts=0, after=0) as proxy:
        reader, parts = planned(proxy.port)
        before = proxy.connections
        for _ in range(3):
            assert sequences(reader, parts) == list(range(1, COUNT + 1))
        assert len(parts) == TASKS
        assert proxy.connections == before + 1
        kept.forget()


def test_a_connection_that_broke_in_use_or_before_is_replaced(node: Server) -> None:
    port = int(node.url.rpartition(":")[2])
    with CuttingProxy(port, cuts=4, after=4000) as proxy:
        reader, parts = planned(proxy.port)
        for _ in range(6):
            assert sequences(reader, parts) == list(range(1, COUNT + 1))
        assert proxy.connections > 4
        kept.forget()


def test_a_server_that_came_back_is_found(node: Server, tmp_path: Path) -> None:
    port = int(node.url.rpartition(":")[2])
    reader, parts = planned(port)
    assert sequences(reader, parts[:1]) == list(range(1, COUNT // TASKS + 1))
    node.process.terminate()
    node.process.wait(10)
    node.process = start_server(tmp_path, kind="headwater", port=port).process
    assert sequences(reader, parts) == list(range(1, COUNT + 1))


def test_who_stops_early_leaves_no_rows_for_the_next_one(node: Server) -> None:
    stored(node, "BIG", 50, 40_000)
    port = node.url.rpartition(":")[2]
    reader, parts = planned(port, "BIG", batchBytes="65536")
    for _ in range(3):
        reading = reader.read(parts[0])
        next(reading)
        reading.close()
        assert sequences(reader, parts) == list(range(1, 51))


def test_each_user_has_a_connection_of_its_own(tmp_path: Path) -> None:
    accounts = [
        f"A{n} {{ jetstream: enabled, users: [{{user: u{n}, password: x}}] }}" for n in (1, 2)
    ]
    config = "accounts {\n" + "\n".join(accounts) + "\n}"
    node = start_server(tmp_path, config, "headwater")
    try:
        port = node.url.rpartition(":")[2]
        for n, count in ((1, 4), (2, 8)):

            async def work(_: Any, js: Any, count: int = count) -> None:
                await js.add_stream(name="S", subjects=["S"])
                for _ in range(count):
                    await js.publish("S", b"x")

            node.run(work, user=f"u{n}", password="x")
        reads = [planned(port, user=f"u{n}", password="x") for n in (1, 2)]
        for _ in range(2):
            assert [len(sequences(*one)) for one in reads] == [4, 8]
    finally:
        kept.forget()
        node.process.terminate()
        node.process.wait(10)


def test_a_small_range_of_a_stream_that_was_made_anew_is_refused(node: Server) -> None:
    reader, parts = planned(node.url.rpartition(":")[2])
    assert sequences(reader, parts)
    node.run(lambda _, js: js.delete_stream("S"))
    stored(node, "S", COUNT)
    with pytest.raises(StreamRecreatedError):
        sequences(reader, parts)
