"""Key/value buckets in Spark: as a table, as a feed of changes, and as a target."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from headwater.spark.errors import OptionError
from headwater.spark.options import SourceOptions, parse_options
from headwater.spark.read import latest_values
from headwater.spark.read.layout import default_layout
from headwater.spark.read.partition import RangePartition, read_partition
from headwater.spark.read.planning import plan_ranges
from headwater.spark.write.sink import commit_batch, write_batch
from tests.spark.conftest import Server
from tests.waiting import until

QUERY_S = 250
"""Ample for a streaming query of a few rows, beside other work."""


@pytest.fixture
def bucket(server: Server) -> Iterator[Callable[..., str]]:
    """Makes buckets, which go away with the test, and what queries leave."""
    made = ["headwater-spark"]

    def make(name: str, history: int = 5) -> str:
        made.append(name)
        server.run(lambda _, js: js.create_key_value(bucket=name, history=history))
        return name

    yield make

    async def drop(connection: Any, js: Any) -> None:
        import nats.js.errors

        for name in made:
            try:
                await js.delete_key_value(name)
            except nats.js.errors.NotFoundError:
                continue

    server.run(drop)


def change(server: Server, name: str, *changes: tuple[str, bytes | None]) -> None:
    """Put values; None deletes a key, b"purge" purges it."""

    async def work(connection: Any, js: Any) -> None:
        kv = await js.key_value(name)
        for key, value in changes:
            if value == b"purge":
                await kv.purge(key)
            elif value is None:
                await kv.delete(key)
            else:
                await kv.put(key, value)

    server.run(work)


def held(server: Server, name: str) -> dict[str, bytes]:
    """The latest values. Not by nats-py's `keys`: it finds none where nats-server's answer about
    its consumer overtakes the keys, as 2 of 1000 times beside other work."""

    async def work(connection: Any, js: Any) -> dict[str, bytes]:
        import nats.js.errors

        kv = await js.key_value(name)
        info = await js.stream_info(f"KV_{name}", subjects_filter=">")
        found = {}
        for subject in info.state.subjects or {}:
            key = subject.removeprefix(f"$KV.{name}.")
            with contextlib.suppress(nats.js.errors.KeyNotFoundError):
                found[key] = (await kv.get(key)).value
        return found

    return server.run(work)


def options(server: Server, name: str, **more: str) -> SourceOptions:
    return parse_options({"servers": server.url, "kv": name, "retryTimeout": "5", **more})


def table(checked: SourceOptions, ranges: Any = None) -> dict[str, bytes]:
    (work, *_) = plan_ranges(checked) if ranges is None else ranges
    batches = read_partition(checked, default_layout(checked), RangePartition(work))
    return {row["key"]: row["value"] for batch in batches for row in batch.to_pylist()}


@pytest.mark.usefixtures("one_server")
def test_a_bucket_is_a_table_and_a_feed(spark: Any, server: Server, bucket: Callable) -> None:
    name = bucket("CONF")
    change(
        server, name, ("a.x", b'{"n":1}'), ("b.x", b'{"n":2}'), ("a.x", b'{"n":3}'),
        ("c", b'{"n":4}'), ("c", None), ("d.x", b'{"n":5}'), ("d.x", b"purge"), ("b.x", b'{"n":6}'),
    )  # fmt: skip

    def load(**more: str) -> Any:
        given = {"servers": server.url, "kv": name, **more}
        return spark.read.format("headwater").options(**given).load()

    rows = load().orderBy("revision").collect()
    assert [(row.key, bytes(row.value), row.operation, row.revision) for row in rows] == [
        ("a.x", b'{"n":3}', "put", 3),
        ("b.x", b'{"n":6}', "put", 8),
    ]
    # A filter on the revision is one on the latest values: an older one does not come back.
    assert load().where("revision <= 2").count() == 0
    assert [row.key for row in load(keys="b.*").collect()] == ["b.x"]
    decoded = load(valueFormat="json", valueSchema="n long", columns="key")
    assert {row.key: row.n for row in decoded.collect()} == {"a.x": 3, "b.x": 6}
    feed = load(changes="true", valueFormat="json", valueSchema="n long").orderBy("revision")
    seen = [(row.key, row.operation, row.n, row["_corrupt_record"]) for row in feed.collect()]
    assert seen == [
        ("a.x", "put", 1, None), ("b.x", "put", 2, None), ("a.x", "put", 3, None),
        ("c", "put", 4, None), ("c", "delete", None, None), ("d.x", "purge", None, None),
        ("b.x", "put", 6, None),
    ]  # fmt: skip


@pytest.mark.usefixtures("one_server")
def test_a_query_copies_a_bucket(
    spark: Any, server: Server, bucket: Callable, tmp_path: Any
) -> None:
    source, target = bucket("SRC"), bucket("DST", history=1)
    change(server, source, ("a", b"1"), ("b", b"2"), ("a", b"3"))

    def run() -> None:
        frame = spark.readStream.format("headwater").options(servers=server.url, kv=source).load()
        assert frame.columns == ["key", "value", "operation", "revision", "timestamp"]
        writer = frame.select("key", "value").writeStream.format("headwater")
        given = {"servers": server.url, "kv": target, "checkpointLocation": str(tmp_path / "cp")}
        query = writer.options(**given).trigger(availableNow=True).start()
        assert query.awaitTermination(QUERY_S)

    run()
    assert held(server, target) == {"a": b"3", "b": b"2"}
    change(server, source, ("b", None), ("c", b"4"))
    run()
    assert held(server, target) == {"a": b"3", "c": b"4"}
    frame = spark.createDataFrame([("c", None), ("e.f", "text")], "key string, value string")
    given = {"servers": server.url, "kv": target}
    frame.write.format("headwater").options(**given).mode("append").save()
    assert held(server, target) == {"a": b"3", "e.f": b"text"}


def test_keys_that_change_while_they_are_read(
    server: Server, bucket: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latest_values, "FOLD_BYTES", 1)
    name = bucket("HOT", history=1)
    change(server, name, *((f"k{n}", b"old") for n in range(20)))
    checked = options(server, name)
    ranges = plan_ranges(checked)
    # All of the plan is replaced before it is read.
    change(server, name, *((f"k{n}", b"new") for n in range(19)), ("k19", None))
    assert table(checked, ranges) == {f"k{n}": b"new" for n in range(19)}
    done = threading.Event()
    first = threading.Event()

    def keep_changing() -> None:
        async def work(connection: Any, js: Any) -> None:
            kv = await js.key_value(name)
            count = 0
            while not done.is_set():
                await kv.put(f"k{count % 5}", b"%d" % count)
                count += 1
                first.set()

        server.run(work)

    thread = threading.Thread(target=keep_changing)
    thread.start()
    try:
        assert first.wait(30)
        for _ in range(5):
            assert set(table(checked)) == {f"k{n}" for n in range(19)}
    finally:
        done.set()
        thread.join(30)


def test_a_table_that_is_too_large(
    server: Server, bucket: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = bucket("LARGE")
    change(server, name, ("a", b"x" * 1000), ("b", b"x" * 1000))
    monkeypatch.setattr(latest_values, "TABLE_BYTES", 1500)
    with pytest.raises(Exception, match="too much for one task: read some keys"):
        table(options(server, name))


def rows(*pairs: tuple[str, bytes | None]) -> pa.RecordBatch:
    keys, values = zip(*pairs, strict=True)
    return pa.RecordBatch.from_pydict(
        {"key": list(keys), "value": pa.array(list(values), pa.binary())}
    )




def test_a_batch_that_is_run_again_after_the_window(server: Server, bucket: Callable) -> None:
    name = bucket("AGAIN", history=1)

    async def shorten(connection: Any, js: Any) -> None:
        config = (await js.stream_info(f"KV_{name}")).config
        config.duplicate_window = 0.1
        await js.update_stream(config)

    server.run(shorten)
    checked = options(server, name)
    batch = rows(("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", None))
    # The driver dies between the write and the commit of its batch.
    first = write_batch(checked, iter([batch]), "query-1", "run-1", 0)
    assert (first.rows, first.skipped) == (3, 0)
    server.run(lambda _, js: forgotten(js, name))
    before = server.run(lambda _, js: js.stream_info(f"KV_{name}")).state.last_seq
    again = write_batch(checked, iter([batch]), "query-1", "run-2", 0)
    assert (again.rows, again.skipped) == (0, 3)
    commit_batch(checked, [again], 0)
    assert server.run(lambda _, js: js.stream_info(f"KV_{name}")).state.last_seq == before
    assert {key: held(server, name)[key] for key in ("a", "b")} == {"a": b"3", "b": b"2"}
    later = write_batch(checked, iter([rows(("a", b"4"))]), "query-1", "run-2", 1)
    assert later.rows == 1 and held(server, name)["a"] == b"4"


async def forgotten(js: Any, name: str) -> None:
    """Until the bucket has forgotten ids: one that came after the others is taken again."""
    headers = {"Nats-Msg-Id": "probe"}
    await js.publish(f"$KV.{name}.probe", b"", headers=headers)

    async def taken() -> bool:
        return not (await js.publish(f"$KV.{name}.probe", b"", headers=headers)).duplicate

    await until(taken)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kv": "a.b"}, "is no bucket name"),
        ({"kv": "A", "stream": "S"}, "exclude each other"),
        ({"kv": "A", "starting": "5"}, "needs changes=true"),
        ({"kv": "A", "headers": "raw"}, "off or map"),
        ({"kv": "A", "columns": "subject"}, "none of key, value"),
        ({"kv": "A", "keys": "a..b"}, "option 'keys'"),
        ({"stream": "S", "changes": "true"}, "needs option 'kv'"),
    ],
)
def test_mistakes(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse_options(given)


def test_rows_that_are_no_keys(server: Server, bucket: Callable) -> None:
    checked = options(server, bucket("KEYS"))
    for key in ("a b", ".a", "a.*", None):
        with pytest.raises(OptionError, match="is no key"):
            write_batch(checked, iter([rows((key, b"x"))]), "query-1", "run-1", 0)
