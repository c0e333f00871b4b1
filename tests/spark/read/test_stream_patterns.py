"""Streams that a pattern finds: in batches, and while they come and go in streaming queries."""

from collections.abc import Callable
from typing import Any

import pytest

from headwater.spark.errors import (
    LostRangeError,
    OptionError,
    StreamRecreatedError,
    UnknownStreamError,
    UnsupportedStreamError,
)
from headwater.spark.options import parse_options
from headwater.spark.read.planning import plan_ranges
from headwater.spark.read.stream_names import matches
from tests.spark.read.test_stream_reader import ALL, ends, numbered, open_reader, publish


def options(server: Any, patterns: str, **more: str) -> dict[str, str]:
    return {"servers": server.url, "streams": patterns, **more}


def delete(server: Any, stream: str) -> None:
    server.run(lambda connection, js: js.delete_stream(stream))


def rows(reader: Any, start: Any, end: Any) -> list[tuple[str, int]]:
    return sorted(
        (row["stream"], row["sequence"])
        for part in reader.partitions(start, end)
        for batch in reader.read(part)
        for row in batch.select(["stream", "sequence"]).to_pylist()
    )


def test_a_star_is_any_text() -> None:
    assert matches(("edge-*",), "edge-") and matches(("x", "*-7-*"), "edge-7-a")
    assert not matches(("edge-*", "E+"), "my-edge-1") and not matches(("E+",), "EE")


def test_a_batch_reads_what_matches(server: Any, fill: Callable) -> None:
    for name in ("PAT-1", "PAT-2", "OTHER-PAT"):
        fill(name, numbered(name, 3))
    found = plan_ranges(parse_options(options(server, "PAT-*")))
    assert [(work.stream, work.planned) for work in found] == [("PAT-1", 3), ("PAT-2", 3)]
    with pytest.raises(UnknownStreamError, match="no stream matches NONE-\\*"):
        plan_ranges(parse_options(options(server, "NONE-*")))
    with pytest.raises(UnknownStreamError, match="no regular expressions: \\* is any text"):
        plan_ranges(parse_options(options(server, "PAT-1|PAT-2")))


def test_more_streams_than_a_page_of_names(server: Any) -> None:
    """A page has 1024 names, and 128 questions wait for their answers at a time."""
    names = [f"PAGE-{n:04}" for n in range(1100)]

    async def make(connection: Any, js: Any) -> None:
        for name in names:
            await js.add_stream(name=name, subjects=[name], storage="memory")
        for name in names[::100]:
            await js.publish(name, b"x")

    async def drop(connection: Any, js: Any) -> None:
        for name in names:
            await js.delete_stream(name)

    server.run(make)
    try:
        reader = open_reader(options(server, "PAGE-*"))
        start = reader.initialOffset()
        assert sorted(ends(start)) == names[::100]
        end = reader.latestOffset(start, ALL)
        assert rows(reader, start, end) == [(name, 1) for name in names[::100]]
        reader.stop()
    finally:
        server.run(drop)


def test_streams_that_appear_are_read_from_their_start(server: Any, fill: Callable) -> None:
    reader = open_reader(options(server, "COME-*", starting="3", maxMsgsPerTrigger="6"))
    limit = reader.getDefaultReadLimit()
    start = reader.initialOffset()
    assert ends(reader.latestOffset(start, limit)) == {}
    fill("COME-1", numbered("COME-1", 2))
    first = reader.latestOffset(start, limit)
    assert rows(reader, start, first) == [("COME-1", 1), ("COME-1", 2)]
    fill("COME-2", [])
    assert reader.latestOffset(first, limit) == first
    publish(server, "COME-2.0", 9)
    fill("COME-3", numbered("COME-3", 1), max_msgs=1)
    publish(server, "COME-3.0", 3)
    second = reader.latestOffset(first, limit)
    assert rows(reader, first, second) == [*(("COME-2", n) for n in range(1, 6)), ("COME-3", 4)]
    third = reader.latestOffset(second, limit)
    assert rows(reader, second, third) == [("COME-2", n) for n in range(6, 10)]
    assert ends(reader.reportLatestOffset()) == {"COME-1": 2, "COME-2": 9, "COME-3": 4}
    # A driver that starts anew plans the same rows from the offsets of the checkpoint.
    again = open_reader(options(server, "COME-*"))
    assert rows(again, first, second) == rows(reader, first, second)
    for one in (reader, again):
        one.stop()


def test_a_stream_that_waits_for_its_turn_may_expire(server: Any, fill: Callable) -> None:
    for name in ("TURN-1", "TURN-2"):
        fill(name, numbered(name, 4), max_msgs=4)
    reader = open_reader(options(server, "TURN-*", maxMsgsPerTrigger="1"))
    limit, offset = reader.getDefaultReadLimit(), reader.initialOffset()
    one = reader.latestOffset(offset, limit)
    assert rows(reader, offset, one) == [("TURN-1", 1)]
    publish(server, "TURN-2.0", 2)
    two = reader.latestOffset(one, limit)
    assert rows(reader, one, two) == [("TURN-2", 3)]
    reader.stop()


@pytest.mark.parametrize("named", [False, True])
def test_a_stream_that_disappears(server: Any, fill: Callable, named: bool) -> None:
    for name in ("GONE-1", "GONE-2"):
        fill(name, numbered(name, 3))
    given = server.options("GONE-1,GONE-2") if named else options(server, "GONE-*")
    strict, loose = open_reader(given), open_reader(given | {"failOnDataLoss": "false"})
    start = strict.initialOffset()
    first = strict.latestOffset(start, ALL)
    parts = loose.partitions(start, first)
    delete(server, "GONE-1")
    publish(server, "GONE-2.0", 1)
    with pytest.raises(UnknownStreamError, match=r"'GONE-1' does not exist.* from sequence 4 on"):
        strict.latestOffset(first, ALL)
    with pytest.raises(UnknownStreamError, match=r"'GONE-1' does not exist.* from sequence 1 on"):
        strict.partitions(start, first)
    with pytest.raises(UnknownStreamError, match="does not exist"):
        list(strict.read(parts[0]))
    assert list(loose.read(parts[0])) == []
    assert rows(loose, start, first) == [("GONE-2", n) for n in range(1, 4)]
    second = loose.latestOffset(first, ALL)
    assert ends(second) == {"GONE-1": 3, "GONE-2": 4}
    assert rows(loose, first, second) == [("GONE-2", 4)]
    assert ends(loose.reportLatestOffset()) == {"GONE-2": 4}
    fill("GONE-1", numbered("GONE-1", 9))
    for reader in (strict, loose):
        with pytest.raises(StreamRecreatedError, match="'GONE-1' was deleted and created again"):
            reader.latestOffset(second, ALL)
        reader.stop()


def test_an_empty_stream_has_nothing_to_lose(server: Any, fill: Callable) -> None:
    """One that a pattern finds may go before its first message; a named one must be there."""
    fill("VOID-1", numbered("VOID-1", 2))
    fill("VOID-2", [])
    reader = open_reader(options(server, "VOID-*"))
    start = reader.initialOffset()
    assert ends(start) == {"VOID-1": 0}
    named = open_reader(server.options("VOID-2"))
    nothing = named.initialOffset()
    delete(server, "VOID-2")
    end = reader.latestOffset(start, ALL)
    assert rows(reader, start, end) == [("VOID-1", 1), ("VOID-1", 2)]
    with pytest.raises(UnknownStreamError, match="has read nothing of it yet: whatever it had"):
        named.latestOffset(nothing, ALL)
    fill("VOID-2", numbered("VOID-2", 3))
    later = reader.latestOffset(end, ALL)
    assert rows(reader, end, later) == [("VOID-2", 1), ("VOID-2", 2), ("VOID-2", 3)]
    for one in (reader, named):
        one.stop()


def test_available_now_leaves_out_what_appears_later(server: Any, fill: Callable) -> None:
    fill("STOP-1", numbered("STOP-1", 2))
    reader = open_reader(options(server, "STOP-*"))
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    fill("STOP-2", numbered("STOP-2", 2))
    end = reader.latestOffset(start, ALL)
    assert ends(end) == {"STOP-1": 2}
    assert reader.latestOffset(end, ALL) == end
    reader.stop()


def test_checkpoints_of_names_and_of_patterns(server: Any, fill: Callable) -> None:
    for name in ("SAME-1", "SAME-2"):
        fill(name, numbered(name, 2))
    offset = open_reader(server.options("SAME-1")).initialOffset()
    wide = open_reader(options(server, "SAME-*"))
    assert ends(wide.latestOffset(offset, ALL)) == {"SAME-1": 2, "SAME-2": 2}
    with pytest.raises(OptionError, match="a query over SAME-1, not ELSE-\\*"):
        open_reader(options(server, "ELSE-*")).latestOffset(offset, ALL)
    wide.stop()


def test_what_a_checkpoint_knows_is_a_promise(server: Any, fill: Callable) -> None:
    for name in ("KEEP-1", "KEEP-2"):
        fill(name, numbered(name, 2), max_msgs=5)
    reader = open_reader(options(server, "KEEP-*"))
    start = reader.initialOffset()
    first = reader.latestOffset(start, ALL)
    publish(server, "KEEP-2.0", 9)
    second = reader.latestOffset(first, ALL)
    with pytest.raises(LostRangeError, match="'KEEP-2' starts at sequence 7, but the read at 3"):
        reader.partitions(first, second)
    reader.stop()


def test_a_work_queue_that_matches_is_refused(server: Any, fill: Callable) -> None:
    fill("WORK-1", numbered("WORK-1", 2))
    reader = open_reader(options(server, "WORK-*"))
    start = reader.initialOffset()
    fill("WORK-2", numbered("WORK-2", 2), retention="workqueue")
    with pytest.raises(UnsupportedStreamError, match="WORK-2"):
        reader.latestOffset(start, ALL)
    reader.stop()
