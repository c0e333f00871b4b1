"""Block reads: the same rows as over a consumer, bounded, within the rights of the user."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.spark.errors import UnsupportedStreamError
from headwater.spark.options import parse_options
from headwater.spark.read.blocks import Wanted, read_block
from headwater.spark.read.planning import plan_ranges
from headwater.spark.source import HeadwaterSource
from headwater.spark.wire.connection import Connection
from headwater.spark.wire.wire_reader import WireReader
from tests.spark.conftest import Server, start_server
from tests.spark.cutting_proxy import CuttingProxy

SEALED = 'jetstream {{ store_dir: "{}/store", key: "0123456789abcdef0123456789abcdef" }}'
USERS = """authorization { users: [
  {user: all, password: x}
  {user: consumers, password: x, permissions: {subscribe: ">", publish: [
     "$JS.API.STREAM.>", "$JS.API.CONSUMER.>"]}}
  {user: bound, password: x, permissions: {subscribe: ">", publish: [
     "$JS.API.STREAM.>", "$JS.API.CONSUMER.>", "$JS.API.BLOCK.GET.B.B.1"]}}
] }"""


def start(folder: Path, config: str = "") -> Server:
    return start_server(folder, config, "headwater")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = start(tmp_path_factory.mktemp("node"))
    yield running
    running.process.terminate()
    running.process.wait(10)


def stored(
    server: Server,
    name: str,
    count: int,
    size: int = 30,
    delete: tuple[int, ...] = (),
    **config: Any,
) -> None:
    """A stream with messages on seven subjects, every fifth with headers; some are deleted."""

    async def work(connection: Any, js: Any) -> None:
        await js.add_stream(name=name, subjects=[f"{name}.>"], **config)
        for i in range(count):
            headers = {"I": str(i), "Twice": "a"} if i % 5 == 0 else None
            payload = f"{i}:".encode().ljust(i % size, b".")
            await connection.publish(f"{name}.{i % 7}", payload, headers=headers)
            if i % 1000 == 999:
                await connection.flush()
        await connection.flush()
        while (await js.stream_info(name)).state.last_seq < count:
            await connection.flush()
        for sequence in delete:
            await js.delete_msg(name, sequence)

    server.run(work)


def rows_of(options: dict[str, str]) -> list[tuple]:
    source = HeadwaterSource(options)
    reader = source.reader(source.schema())
    return [
        tuple(row.values())
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


def digest(rows: list[tuple]) -> str:
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def both(options: dict[str, str]) -> list[tuple]:
    """The rows of a block read; they are those of a consumer."""
    blocks = rows_of(options | {"readPath": "block"})
    assert digest(blocks) == digest(rows_of(options | {"readPath": "wire"}))
    return blocks


@pytest.mark.parametrize("headers", ["off", "map", "raw"])
def test_deletes_headers_and_partitions(node: Server, headers: str) -> None:
    name = f"D{headers}"
    stored(node, name, 3000, delete=(1, 2, 100, 101, 2999))
    rows = both(node.options(name, headers=headers, partitions="3", batchBytes="65536"))
    assert len(rows) == 2995


@pytest.mark.parametrize(
    ("filters", "count"),
    [("F.3", 286), ("F.1,F.5", 571), ("F.*", 2000), ("F.none", 0), ("other.>", 0)],
)
def test_filters(node: Server, filters: str, count: int) -> None:
    if "F" not in {row["name"] for row in streams(node)}:
        stored(node, "F", 2000)
    assert len(both(node.options("F", subjects=filters))) == count


def streams(server: Server) -> list[dict[str, Any]]:
    with Connection(parse_options(server.options("X")).endpoint) as connection:
        found = connection.api("$JS.API.STREAM.LIST")["streams"] or []
    return [one["config"] for one in found]


def test_a_filter_over_many_subjects(node: Server) -> None:
    """More subjects than a filter follows one by one: entries are scanned, a part at a time."""

    async def work(connection: Any, js: Any) -> None:
        await js.add_stream(name="MANY", subjects=["M.>"], storage="memory")
        for i in range(5000):
            await connection.publish(f"M.{i % 100}.{'ab'[i % 2]}", b"%d" % i)
        await connection.flush()
        while (await js.stream_info("MANY")).state.last_seq < 5000:
            await connection.flush()

    node.run(work)
    assert len(both(node.options("MANY", subjects="M.*.a", partitions="3"))) == 2500


def test_a_bucket(node: Server) -> None:
    async def work(connection: Any, js: Any) -> None:
        bucket = await js.create_key_value(bucket="config", history=2)
        for i in range(400):
            await bucket.put(f"key{i % 50}", b"%d" % i)
        for i in range(5):
            await bucket.delete(f"key{i}")

    node.run(work)
    assert len(both(node.options("KV_config", headers="map"))) == 100


@pytest.mark.parametrize("config", ["", SEALED])
def test_compressed_and_sealed_segments(tmp_path: Path, config: str) -> None:
    """What is read comes out of the log's images first, and out of segments after a restart."""
    config = config.format(tmp_path)
    server = start(tmp_path, config)
    try:
        stored(server, "C", 4000, size=300, compression="s2")
        before = both(server.options("C", headers="raw"))
        server.process.terminate()
        server.process.wait(10)
        server = start(tmp_path, config)
        assert digest(both(server.options("C", headers="raw"))) == digest(before)
        assert len(before) == 4000
    finally:
        server.process.terminate()
        server.process.wait(10)


def test_json_fields_and_large_messages(node: Server) -> None:
    async def work(connection: Any, js: Any) -> None:
        await js.add_stream(name="J", subjects=["J"], storage="memory")
        for i in range(50):
            text = "x" * (900_000 if i == 25 else 10)
            await js.publish("J", json.dumps({"n": i, "text": text}).encode())

    node.run(work)
    options = node.options("J", valueFormat="json", valueSchema="n long, text string")
    rows = both(options)
    assert [row[-3] for row in rows] == list(range(50))


def test_a_broken_connection_goes_on(node: Server) -> None:
    stored(node, "CUT", 5000, size=200)
    whole = both(node.options("CUT"))
    port = int(node.url.rpartition(":")[2])
    with CuttingProxy(port, cuts=4, after=150_000) as proxy:
        options = {"servers": f"nats://127.0.0.1:{proxy.port}", "stream": "CUT"}
        options |= {"readPath": "block", "batchBytes": "65536"}
        assert digest(rows_of(options)) == digest(whole)
        assert proxy.connections > 4


def test_a_filter_keeps_bytes_on_the_server(node: Server) -> None:
    """The last ten of many: what leaves the server is under a hundredth of the stream."""

    async def work(connection: Any, js: Any) -> None:
        await js.add_stream(name="LAST", subjects=["L.>"], storage="memory")
        for i in range(20_010):
            await connection.publish("L.rare" if i >= 20_000 else f"L.{i % 40}", b"x" * 100)
        await connection.flush()
        while (await js.stream_info("LAST")).state.last_seq < 20_010:
            await connection.flush()

    node.run(work)
    with CuttingProxy(int(node.url.rpartition(":")[2]), cuts=0, after=0) as proxy:
        options = {"servers": f"nats://127.0.0.1:{proxy.port}", "stream": "LAST"}
        assert len(rows_of(options | {"readPath": "block", "subjects": "L.rare"})) == 10
        size = 20_010 * 100
        assert 0 < proxy.delivered < size / 100


def test_servers_without_blocks(server: Any, fill: Callable) -> None:
    """On a server that has no block reads the same options read by a consumer."""
    fill("WHICH", [("WHICH.a", b"1", None)])
    ours = "nats-server" not in server.process.args[0]
    (work,) = plan_ranges(parse_options(server.options("WHICH")))
    assert work.blocks == ours
    assert len(rows_of(server.options("WHICH"))) == 1
    if not ours:
        with pytest.raises(UnsupportedStreamError, match="readPath=auto"):
            plan_ranges(parse_options(server.options("WHICH", readPath="block")))


def test_rights(tmp_path: Path) -> None:
    """Who may not read blocks reads by a consumer; a right that is bound to a filter is no more."""
    server = start(tmp_path, USERS)

    async def work(connection: Any, js: Any) -> None:
        await js.add_stream(name="B", subjects=["B.>"], storage="memory")
        for i in range(20):
            await js.publish(f"B.{i % 2}", b"%d" % i)

    def planned(user: str, **more: str) -> bool:
        options = server.options("B", user=user, password="x", **more)
        (one,) = plan_ranges(parse_options(options))
        assert len(rows_of(options)) == (10 if more else 20)
        return one.blocks

    try:
        server.run(work, user="all", password="x")
        assert planned("all") and planned("all", subjects="B.1")
        assert not planned("consumers")
        assert not planned("bound") and not planned("bound", subjects="B.0")
        assert planned("bound", subjects="B.1")
    finally:
        server.process.terminate()
        server.process.wait(10)


def ask(connection: Connection, subject: str, body: Any) -> bytes:
    return connection.request(subject, json.dumps(body).encode()).headers.partition(b"\r\n")[0]


@pytest.mark.parametrize(
    ("tail", "body", "status"),
    [
        ("", {"columns": ["colour"]}, b"400 Unknown Column"),
        ("", {"filters": ["a..b"]}, b"400 Bad Filter"),
        ("", {"filters": ["a"] * 33}, b"400 Too Many Filters"),
        (".R.1", {"filters": ["R.2"]}, b"400 Filter Differs From Subject"),
        ("", {"seq": "one"}, b"400 Malformed Request"),
        ("", {"start_time": "yesterday"}, b"400 Malformed Request"),
        ("", ["seq"], b"400 Malformed Request"),
    ],
)
def test_refusals(node: Server, tail: str, body: Any, status: bytes) -> None:
    if "R" not in {row["name"] for row in streams(node)}:
        stored(node, "R", 1)
    with Connection(parse_options(node.options("R")).endpoint) as connection:
        assert ask(connection, f"$JS.API.BLOCK.GET.R{tail}", body) == b"NATS/1.0 " + status


def test_no_answer_ends_in_a_block_of_a_few_rows(node: Server) -> None:
    """Each block costs its reader about the same: an answer is as many full ones as fit."""
    stored(node, "FULL", 3000, 200)
    body = {"columns": ["payload"], "block_bytes": 16 << 10, "max_bytes": 64 << 10, "seq": 1}
    sizes: list[int] = []
    last = False
    with Connection(parse_options(node.options("FULL")).endpoint) as connection:
        reply = f"{connection.inbox}.f"
        connection.publish("$JS.API.BLOCK.GET.FULL", json.dumps(body).encode(), reply)
        while not last:
            frame = connection.next_frame(time.monotonic() + 10)
            if not connection.control(frame):
                columns, _, last = read_block(frame.payload, Wanted(subject=False), WireReader())
                sizes.append(columns.rows)
    assert len(sizes) == 4
    assert min(sizes) > max(sizes) // 2


def test_answers_under_way_are_bounded(node: Server) -> None:
    """A receiver that reads nothing holds back what it asked for, and others still get answers."""
    stored(node, "SLOW", 2)

    async def work(connection: Any, js: Any) -> None:
        for _ in range(100):
            await js.publish("SLOW.big", b"x" * 500_000)

    node.run(work)
    options = parse_options(node.options("SLOW"))
    request = json.dumps({"columns": ["payload"], "max_bytes": 64 << 20}).encode()
    with Connection(options.endpoint) as slow, Connection(options.endpoint) as other:
        for _ in range(100):
            slow.publish("$JS.API.BLOCK.GET.SLOW", request, f"{slow.inbox}.s")
        deadline = time.monotonic() + 20
        while (status := ask(other, "$JS.API.BLOCK.GET.SLOW", {})) == b"":
            assert time.monotonic() < deadline, "no limit was met"
        assert status == b"NATS/1.0 429 Too Many Block Reads"
        other.api("$JS.API.STREAM.INFO.SLOW")
    with Connection(options.endpoint) as again:
        while ask(again, "$JS.API.BLOCK.GET.SLOW", {"max_bytes": 1}) != b"":
            assert time.monotonic() < deadline, "the slow receiver's reads still count"
