"""Offsets and microbatches of streaming queries, without a JVM."""

import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from headwater.spark.errors import (
    ConnectError,
    LostRangeError,
    OptionError,
    StreamRecreatedError,
    UnknownStreamError,
    UnsupportedStreamError,
)
from headwater.spark.options import parse_options
from headwater.spark.read.layout import default_layout
from headwater.spark.read.stream_reader import POLL_SECONDS, HeadwaterStreamReader
from headwater.spark.source import HeadwaterSource

ALL = ReadAllAvailable()


def numbered(name: str, count: int) -> list[tuple[str, bytes, None]]:
    return [(f"{name}.{i % 2}", b"%d" % i, None) for i in range(count)]


def open_reader(options: dict[str, str]) -> HeadwaterStreamReader:
    checked = parse_options(options)
    return HeadwaterStreamReader(checked, default_layout(checked))


def ends(offset: dict[str, Any]) -> dict[str, int]:
    return {stream: place["sequence"] for stream, place in offset["streams"].items()}


def rows(reader: HeadwaterStreamReader, start: Any, end: Any) -> list[int]:
    parts = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    return [
        number
        for part in parts
        for batch in reader.read(part)
        for number in batch.column("sequence").to_pylist()
    ]


def publish(server: Any, subject: str, count: int) -> None:
    async def work(connection: Any, js: Any) -> None:
        for _ in range(count):
            await js.publish(subject, b"x")

    server.run(work)


def purge(server: Any, stream: str, **what: Any) -> None:
    server.run(lambda connection, js: js.purge_stream(stream, **what))


def test_batches_follow_each_other(server: Any, fill: Callable) -> None:
    fill("LIVE", numbered("LIVE", 10), delete=(4,))
    reader = open_reader(server.options("LIVE"))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert (ends(start), ends(end)) == ({"LIVE": 0}, {"LIVE": 10})
    assert rows(reader, start, end) == [1, 2, 3, 5, 6, 7, 8, 9, 10]
    assert reader.latestOffset(end, ALL) == end and reader.partitions(end, end) == []
    publish(server, "LIVE.0", 3)
    later = reader.latestOffset(end, ALL)
    assert rows(reader, end, later) == [11, 12, 13]
    # A batch that did not end is planned again after a restart, with the offsets of before.
    again = open_reader(server.options("LIVE"))
    assert rows(again, end, later) == [11, 12, 13]
    for open_one in (reader, again):
        open_one.stop()


def test_a_query_may_begin_at_the_end(server: Any, fill: Callable) -> None:
    fill("TAIL", numbered("TAIL", 5))
    reader = open_reader(server.options("TAIL", starting="latest"))
    start = reader.initialOffset()
    assert start["streams"]["TAIL"]["sequence"] == 5 and "earliest" not in start["streams"]["TAIL"]
    publish(server, "TAIL.0", 2)
    end = reader.latestOffset(start, ALL)
    assert rows(reader, start, end) == [6, 7]
    reader.stop()


def test_too_few_messages_wait_until_there_are_more(
    server: Any, fill: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill("FEW", numbered("FEW", 2))
    reader = open_reader(server.options("FEW", minMsgsPerTrigger="5", maxTriggerDelay="1h"))
    start = reader.initialOffset()
    # The first microbatch takes what is there, as a query that begins after a long time does.
    first = reader.latestOffset(start, ALL)
    assert rows(reader, start, first) == [1, 2]
    publish(server, "FEW.0", 4)
    assert reader.latestOffset(first, ALL) == first
    publish(server, "FEW.0", 1)
    second = reader.latestOffset(first, ALL)
    assert rows(reader, first, second) == [3, 4, 5, 6, 7]
    publish(server, "FEW.0", 1)
    assert reader.latestOffset(second, ALL) == second
    assert ends(reader.reportLatestOffset()) == {"FEW": 8}
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 3600)
    third = reader.latestOffset(second, ALL)
    assert rows(reader, second, third) == [8]
    publish(server, "FEW.0", 1)
    reader.prepareForTriggerAvailableNow()
    assert ends(reader.latestOffset(third, ALL)) == {"FEW": 9}
    reader.stop()


def test_a_stream_that_was_created_again_is_read_anew_on_request(
    server: Any, fill: Callable, caplog: pytest.LogCaptureFixture
) -> None:
    fill("ANEW", numbered("ANEW", 5))
    given = server.options("ANEW", onRecreated="restart")
    reader = open_reader(given)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ALL)
    server.run(lambda connection, js: js.delete_stream("ANEW"))
    fill("ANEW", numbered("ANEW", 3))
    # A batch that was planned before, and did not end, has nothing to read any more.
    again = open_reader(given)
    assert rows(again, start, first) == []
    assert "sequences 1 to 5 of the old one are lost" in caplog.text
    second = again.latestOffset(first, ALL)
    assert ends(second) == {"ANEW": 3} and rows(again, first, second) == [1, 2, 3]
    assert "reads the new one from its start" in caplog.text
    publish(server, "ANEW.0", 1)
    third = again.latestOffset(second, ALL)
    assert rows(again, second, third) == [4]
    strict = open_reader(server.options("ANEW"))
    with pytest.raises(StreamRecreatedError, match="onRecreated=restart"):
        strict.latestOffset(first, ALL)
    for one in (reader, again, strict):
        one.stop()


def test_a_stream_that_is_created_again_before_a_planned_batch_is_read(
    server: Any, fill: Callable, caplog: pytest.LogCaptureFixture
) -> None:
    """The tasks failed, and the query with them, though it was to go on with the new stream."""
    fill("LATER", numbered("LATER", 5))
    options = server.options("LATER", onRecreated="restart")
    reader, strict = open_reader(options), open_reader(server.options("LATER"))
    start = reader.initialOffset()
    first = reader.latestOffset(start, ALL)
    (part,) = reader.partitions(start, first)
    server.run(lambda connection, js: js.delete_stream("LATER"))
    fill("LATER", numbered("LATER", 7))
    assert list(reader.read(part)) == []
    assert "sequences 1 to 5 of the old one are lost" in caplog.text
    second = reader.latestOffset(first, ALL)
    assert rows(reader, first, second) == [1, 2, 3, 4, 5, 6, 7]
    for other in (strict, HeadwaterSource(options).reader(HeadwaterSource(options).schema())):
        with pytest.raises(StreamRecreatedError):
            list(other.read(part))
    reader.stop()


def test_many_small_streams_share_tasks(server: Any, fill: Callable) -> None:
    names = [f"SHARD-{n}" for n in range(9)]
    for n, name in enumerate(names):
        fill(name, numbered(name, n + 1))
    shards = {"servers": server.url, "streams": "SHARD-*"}
    reader = open_reader({**shards, "maxPartitions": "4"})
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert len(reader.partitions(start, end)) == 4
    assert rows(reader, start, end) == [n for last in range(1, 10) for n in range(1, last + 1)]
    every = open_reader(shards)
    assert len(every.partitions(start, end)) == 9
    for one in (reader, every):
        one.stop()


def test_a_limit_is_shared_by_the_streams(server: Any, fill: Callable) -> None:
    for name in ("ONE", "TWO"):
        fill(name, numbered(name, 10))
    reader = open_reader(server.options("ONE,TWO", maxMsgsPerTrigger="5", starting="2"))
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(5)
    offset, seen = reader.initialOffset(), []
    while (end := reader.latestOffset(offset, limit)) != offset:
        assert sum(ends(end).values()) - sum(ends(offset).values()) <= 5
        seen += rows(reader, offset, end)
        offset = end
    assert sorted(seen) == sorted([*range(2, 11), *range(2, 11)])
    assert ends(reader.reportLatestOffset()) == {"ONE": 10, "TWO": 10}
    assert open_reader(server.options("ONE")).getDefaultReadLimit() == ALL
    reader.stop()


def test_a_limit_of_bytes(server: Any, fill: Callable) -> None:
    """About as many bytes as said, by the mean size; with a limit of messages, the tighter one."""
    fill("BYTES", numbered("BYTES", 20))
    size = server.run(lambda connection, js: js.stream_info("BYTES")).state.bytes
    quarter = {"maxBytesPerTrigger": str(size // 4)}
    reader = open_reader(server.options("BYTES", **quarter))
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(size // 4)
    offset, seen, batches = reader.initialOffset(), [], 0
    while (end := reader.latestOffset(offset, limit)) != offset:
        batch = rows(reader, offset, end)
        assert 1 <= len(batch) <= 5
        seen, offset, batches = seen + batch, end, batches + 1
    assert seen == list(range(1, 21)) and batches >= 4
    start = reader.initialOffset()
    assert ends(reader.latestOffset(start, ALL)) == {"BYTES": 20}
    both = open_reader(server.options("BYTES", maxMsgsPerTrigger="2", **quarter))
    assert ends(both.latestOffset(start, both.getDefaultReadLimit())) == {"BYTES": 2}
    tiny = open_reader(server.options("BYTES", maxBytesPerTrigger="1"))
    assert ends(tiny.latestOffset(start, tiny.getDefaultReadLimit())) == {"BYTES": 1}
    for one in (reader, both, tiny):
        one.stop()


def test_available_now_ends_with_what_is_there(server: Any, fill: Callable) -> None:
    fill("NOW", numbered("NOW", 10))
    reader = open_reader(server.options("NOW"))
    reader.prepareForTriggerAvailableNow()
    publish(server, "NOW.0", 5)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(7))
    assert ends(end) == {"NOW": 7}
    end = reader.latestOffset(end, ReadMaxRows(7))
    assert ends(end) == {"NOW": 10}
    assert reader.latestOffset(end, ALL) == end
    reader.stop()


@pytest.mark.parametrize(
    "end", [{"ending": "3"}, {"ending": '{"ENDS": 3}'}, {"endingTimestamp": "2030-01-01T00:00:00Z"}]
)
def test_an_end_is_refused(server: Any, fill: Callable, end: dict[str, str]) -> None:
    """As with Kafka's source: who gives one expects that the query ends there."""
    fill("ENDS", numbered("ENDS", 5))
    with pytest.raises(OptionError, match=r"has no end.*availableNow"):
        source = HeadwaterSource(server.options("ENDS", **end))
        source.streamReader(source.schema())


def test_a_stream_that_was_made_again(server: Any, fill: Callable) -> None:
    fill("ANEW", numbered("ANEW", 5))
    reader = open_reader(server.options("ANEW"))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    server.run(lambda connection, js: js.delete_stream("ANEW"))
    with pytest.raises(UnknownStreamError, match="does not exist"):
        reader.latestOffset(end, ALL)
    fill("ANEW", numbered("ANEW", 9))
    with pytest.raises(StreamRecreatedError, match="new checkpoint"):
        reader.latestOffset(end, ALL)
    with pytest.raises(StreamRecreatedError, match="new checkpoint"):
        reader.partitions(start, end)
    reader.stop()


def test_what_expires_before_the_first_read_and_after_a_checkpoint(
    server: Any, fill: Callable
) -> None:
    fill("FULL", numbered("FULL", 20), max_msgs=20)
    options = server.options("FULL")
    reader = open_reader(options)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(10))
    publish(server, "FULL.0", 5)
    assert rows(reader, start, end) == list(range(6, 11))
    publish(server, "FULL.0", 10)
    head = reader.latestOffset(end, ALL)
    with pytest.raises(LostRangeError, match="starts at sequence 16, but the read at 11"):
        reader.partitions(end, head)
    loose = open_reader(options | {"allowExpired": "true"})
    assert rows(loose, end, head) == list(range(16, 36))
    for open_one in (reader, loose):
        open_one.stop()


def told(reader: HeadwaterStreamReader, start: Any, end: Any) -> tuple[int, ...]:
    """What a planned batch says of the sequences before it; each of its ranges is read."""
    parts = reader.partitions(start, end)
    for part in parts:
        list(reader.read(part))
    ((work, *others), *more) = [part.works for part in parts]
    assert not any(sum(one.before) for one in (*others, *(one for each in more for one in each)))
    return work.before


@pytest.mark.parametrize("kind", ["limits", "purge"])
def test_what_is_gone_before_a_batch_is_planned_is_told_and_counted(
    server: Any, fill: Callable, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    fill("GONE", numbered("GONE", 20), **({"max_msgs": 20} if kind == "limits" else {}))
    allowed = {"allowExpired": "true"} if kind == "limits" else {"failOnDataLoss": "false"}
    reader = open_reader(server.options("GONE") | allowed)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(10))
    assert told(reader, start, end) == (0, 0) and not caplog.records
    publish(server, "GONE.0", 15)
    if kind == "purge":
        purge(server, "GONE", seq=16)
    head = reader.latestOffset(end, ALL)
    assert told(reader, end, head) == ((5, 0) if kind == "limits" else (0, 5))
    (said,) = caplog.messages
    counts = "5 expired, 0 were lost" if kind == "limits" else "0 expired, 5 were lost"
    assert "sequences 11 to 15 were gone before the batch was planned: " + counts in said
    if kind == "purge":
        # All of a planned batch is gone.
        purge(server, "GONE")
        assert told(reader, end, head) == (0, 25)
    reader.stop()


def test_a_purge_between_two_batches_is_no_expiry(server: Any, fill: Callable) -> None:
    fill("GONE", numbered("GONE", 20))
    reader = open_reader(server.options("GONE", allowExpired="true"))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(10))
    assert rows(reader, start, end) == list(range(1, 11))
    head = reader.latestOffset(end, ALL)
    purge(server, "GONE", seq=16)
    with pytest.raises(LostRangeError, match="sequences 11 to 15: 5 of them were lost to a purge"):
        reader.partitions(end, head)
    reader.stop()


def test_a_purge_of_a_planned_batch_is_a_loss(server: Any, fill: Callable) -> None:
    fill("PURGE", numbered("PURGE", 20))
    reader = open_reader(server.options("PURGE", subjects="PURGE.0"))
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ALL))
    purge(server, "PURGE", seq=11)
    with pytest.raises(LostRangeError, match="5 planned rows were lost"):
        list(reader.read(parts[0]))
    reader.stop()


def test_new_values_of_a_key_value_stream(server: Any, fill: Callable) -> None:
    fill("KEYS", numbered("KEYS", 4), max_msgs_per_subject=1)
    reader = open_reader(server.options("KEYS"))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    publish(server, "KEYS.0", 2)
    publish(server, "KEYS.1", 2)
    later = reader.latestOffset(end, ALL)
    assert rows(reader, start, end) == []
    assert rows(reader, end, later) == [6, 8]
    reader.stop()


def test_a_checkpoint_of_other_streams(server: Any, fill: Callable) -> None:
    for name in ("LEFT", "RIGHT"):
        fill(name, numbered(name, 2))
    offset = open_reader(server.options("LEFT")).initialOffset()
    with pytest.raises(OptionError, match="new checkpoint for other streams"):
        open_reader(server.options("RIGHT")).latestOffset(offset, ALL)


@pytest.mark.parametrize(
    "position", [5, {}, {"incarnation": 1, "sequence": 1}, {"incarnation": "x", "sequence": -1}]
)
def test_a_damaged_checkpoint_is_told(server: Any, fill: Callable, position: Any) -> None:
    fill("TORN", numbered("TORN", 2))
    with pytest.raises(OptionError, match="the checkpoint is damaged.*Restore the newest file"):
        reader = open_reader(server.options("TORN"))
        reader.latestOffset({"version": 1, "streams": {"TORN": position}}, ALL)


@pytest.mark.parametrize("offset", [5, None, [], {"version": 1, "streams": []}])
def test_an_offset_of_another_shape_is_damage(server: Any, fill: Callable, offset: Any) -> None:
    fill("SHAPE", numbered("SHAPE", 2))
    with pytest.raises(OptionError, match="the checkpoint is damaged"):
        open_reader(server.options("SHAPE")).latestOffset(offset, ALL)


def test_an_offset_behind_the_end_is_of_another_stream(server: Any, fill: Callable) -> None:
    """A copy that was restored is older than the checkpoint: nothing is passed over silently."""
    fill("OLDER", numbered("OLDER", 2))
    reader = open_reader(server.options("OLDER"))
    start = reader.initialOffset()
    start["streams"]["OLDER"]["sequence"] = 1_000_000
    with pytest.raises(StreamRecreatedError, match="put back from an older copy"):
        reader.latestOffset(start, ALL)


def test_a_work_queue_is_refused(server: Any, fill: Callable) -> None:
    fill("QUEUE", numbered("QUEUE", 3), retention="workqueue")
    with pytest.raises(UnsupportedStreamError, match="mirrors"):
        open_reader(server.options("QUEUE")).initialOffset()


def test_looks_without_news_are_not_too_many(server: Any, fill: Callable) -> None:
    fill("QUIET", numbered("QUIET", 3))
    reader = open_reader(server.options("QUIET"))
    offset = reader.latestOffset(reader.initialOffset(), ALL)
    begin = time.monotonic()
    for _ in range(4):
        offset = reader.latestOffset(offset, ALL)
    assert time.monotonic() - begin >= 3 * POLL_SECONDS
    reader.stop()


def test_a_connection_that_broke_is_made_again(server: Any, fill: Callable) -> None:
    fill("BREAK", numbered("BREAK", 3))
    reader = open_reader(server.options("BREAK"))
    offset = reader.initialOffset()
    assert reader._connection is not None and reader._connection._socket is not None
    reader._connection._socket.shutdown(2)
    assert ends(reader.latestOffset(offset, ALL)) == {"BREAK": 3}
    reader.stop()
    away = open_reader(
        server.options("BREAK") | {"servers": "nats://127.0.0.1:1", "retryTimeout": "0.3"}
    )
    with pytest.raises(ConnectError):
        away.initialOffset()
