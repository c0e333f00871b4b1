"""Rows delivered against rows planned, while limits, purges and deletes work on the stream."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from headwater.spark.errors import LostRangeError
from headwater.spark.options import parse_options
from headwater.spark.read.account import Missing, ReadPosition, ReadPositions, classify
from headwater.spark.read.consumer_fetch import ConsumerFetch
from headwater.spark.read.planning import SequenceRange, plan_ranges
from headwater.spark.read.range_reader import RangeReader
from headwater.spark.source import HeadwaterSource
from headwater.spark.wire.wire_reader import Columns, WireReader
from tests.waiting import until_state

COUNT = 1600
SIZE = 200


@pytest.fixture(autouse=True)
def small_pulls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is under way when a read pauses, so what is removed then has not been sent yet.

    A consumer whose messages are gone says so with its next heartbeat only.
    """
    monkeypatch.setattr("headwater.spark.read.consumer_fetch.PULL_BYTES", 40_000)
    monkeypatch.setattr("headwater.spark.read.consumer_fetch.HEARTBEAT", 0.1)


def messages(name: str, count: int = COUNT, subjects: int = 2) -> list[tuple[str, bytes, None]]:
    return [(f"{name}.{i % subjects}", b"x" * SIZE, None) for i in range(count)]


class Read:
    """One range, read in steps: `start` reads the first batch, `finish` all the others."""

    def __init__(self, options: dict[str, str], index: int = 0) -> None:
        checked = parse_options({"batchBytes": "65536", "retryTimeout": "5", **options})
        self.work = plan_ranges(checked)[index]
        wire = WireReader(self.work.start, self.work.end, checked.batch_bytes)
        self.reader = RangeReader(checked, self.work, ConsumerFetch(checked, self.work, wire))
        self.batches = self.reader.batches()
        self.sequences: list[int] = []

    def start(self) -> "Read":
        self._add(next(self.batches))
        assert 0 < len(self.sequences) < COUNT // 2
        return self

    def finish(self) -> Missing:
        for columns in self.batches:
            self._add(columns)
        assert self.reader.missing is not None
        return self.reader.missing

    def _add(self, columns: Columns) -> None:
        data, used = columns.sequence
        self.sequences += memoryview(bytes(data[:used])).cast("q").tolist()


def purge(server: Any, stream: str, **what: Any) -> None:
    server.run(lambda connection, js: js.purge_stream(stream, **what))


def publish(server: Any, subjects: list[str]) -> None:
    async def work(connection: Any, js: Any) -> None:
        for subject in subjects[:-1]:
            await connection.publish(subject, b"x" * SIZE)
        await js.publish(subjects[-1], b"x" * SIZE)

    server.run(work)


FILTERED = [{}, {"subjects": "S.0"}, {"subjects": "S.0,S.1"}]


@pytest.mark.parametrize(
    ("what", "more"),
    [
        ({}, FILTERED[0]),
        ({}, FILTERED[1]),
        ({"seq": 1200}, FILTERED[2]),
        ({"keep": 10}, FILTERED[1]),
        ({"subject": "S.0"}, FILTERED[0]),
        ({"subject": "S.0"}, FILTERED[1]),
    ],
)
def test_a_purge_during_the_read_is_a_loss(
    server: Any, fill: Callable, what: dict[str, Any], more: dict[str, str]
) -> None:
    fill("S", messages("S"))
    read = Read(server.options("S", **more)).start()
    loose = Read(server.options("S", failOnDataLoss="false", **more)).start()
    purge(server, "S", **what)
    with pytest.raises(LostRangeError, match=r"planned rows were lost to a purge.*--allow-loss"):
        read.finish()
    missing = loose.finish()
    assert missing.expired == 0
    assert missing.lost == loose.work.planned - len(loose.sequences) > 0


@pytest.mark.parametrize("more", FILTERED)
def test_a_purge_between_load_and_read_is_a_loss(
    server: Any, fill: Callable, more: dict[str, str]
) -> None:
    fill("S", messages("S"))
    reads = [Read(server.options("S", partitions="2", **more), index) for index in (0, 1)]
    purge(server, "S", seq=501)
    with pytest.raises(LostRangeError, match="sequences 1 to 500"):
        reads[0].finish()
    if more.get("subjects") != "S.0":
        # Every sequence counts, so it is clear before the read of the others.
        assert reads[0].sequences == []
    assert reads[1].finish() == (0, 0)


@pytest.mark.parametrize("more", FILTERED)
def test_single_deletes_are_a_loss(server: Any, fill: Callable, more: dict[str, str]) -> None:
    fill("S", messages("S", 40), delete=(9,))
    read = Read(server.options("S", **more))
    planned = 19 if more.get("subjects") == "S.0" else 39
    assert read.work.planned == planned
    server.run(lambda connection, js: js.delete_msg("S", 21))
    with pytest.raises(LostRangeError, match="1 planned rows were lost"):
        read.finish()


LIMITS = [{"max_msgs": COUNT}, {"max_bytes": COUNT * (SIZE + 40)}]


@pytest.mark.parametrize("more", FILTERED)
@pytest.mark.parametrize("limits", LIMITS, ids=["max_msgs", "max_bytes"])
def test_what_limits_remove_is_expired(
    server: Any, fill: Callable, limits: dict[str, int], more: dict[str, str]
) -> None:
    fill("S", messages("S"), **limits)
    read = Read(server.options("S", **more)).start()
    publish(server, ["S.0", "S.1"] * (COUNT // 2 - 100))
    missing = read.finish()
    assert missing.lost == 0
    assert missing.expired == read.work.planned - len(read.sequences) > 0
    assert read.sequences[-1] in (COUNT, COUNT - 1)


@pytest.mark.parametrize("more", FILTERED[:2])
def test_what_grows_too_old_is_expired(server: Any, fill: Callable, more: dict[str, str]) -> None:
    fill("S", messages("S"), max_age=1)
    read = Read(server.options("S", **more)).start()
    wait_until(server, "S", lambda state: state.messages == 0)
    missing = read.finish()
    assert missing.lost == 0
    assert missing.expired == read.work.planned - len(read.sequences) > 0


@pytest.mark.parametrize("more", FILTERED)
def test_limits_explain_what_is_gone_from_a_stream_that_deletes_keep_below_them(
    server: Any, fill: Callable, more: dict[str, str]
) -> None:
    fill("S", messages("S"), delete=(COUNT - 9,), max_msgs=COUNT)
    read = Read(server.options("S", **more)).start()
    publish(server, ["S.0", "S.1"] * (COUNT // 2 - 100))

    async def delete(connection: Any, js: Any) -> None:
        for sequence in range(COUNT + 1, COUNT + 41):
            await js.delete_msg("S", sequence)

    server.run(delete)
    missing = read.finish()
    assert missing == (read.work.planned - len(read.sequences), 0)
    assert missing.expired > 0


def wait_until(server: Any, stream: str, reached: Callable[[Any], bool]) -> None:
    async def work(connection: Any, js: Any) -> None:
        await until_state(js, stream, reached)

    server.run(work)


def test_a_purge_of_what_is_young_is_a_loss_in_spite_of_max_age(
    server: Any, fill: Callable
) -> None:
    fill("S", messages("S"), max_age=3600, max_msgs=10 * COUNT)
    read = Read(server.options("S")).start()
    purge(server, "S", keep=10)
    with pytest.raises(LostRangeError, match="lost to a purge"):
        read.finish()


def test_a_full_stream_can_be_read_under_traffic(server: Any, fill: Callable) -> None:
    """The steady state of an edge stream: every publish removes the oldest message."""
    fill("S", messages("S"), max_msgs=COUNT)
    with traffic(server, "S.0"):
        for more in FILTERED:
            reads = [Read(server.options("S", partitions="3", **more), i) for i in range(3)]
            for read in reads:
                missing = read.finish()
                assert missing.lost == 0
                assert missing.expired >= read.work.planned - len(read.sequences)
                assert read.sequences == sorted(set(read.sequences))


@contextmanager
def traffic(server: Any, subject: str) -> Iterator[None]:
    """Publish to `subject` all the time, from another thread."""
    stop, running = threading.Event(), threading.Event()

    async def work(connection: Any, js: Any) -> None:
        while not stop.is_set():
            await js.publish(subject, b"x" * SIZE)
            running.set()

    thread = threading.Thread(target=server.run, args=(work,))
    thread.start()
    try:
        assert running.wait(10)
        yield
    finally:
        stop.set()
        thread.join(10)


def test_an_explicit_start_must_not_expire(server: Any, fill: Callable) -> None:
    fill("S", messages("S"), max_msgs=COUNT)
    strict = Read(server.options("S", starting="1")).start()
    loose = Read(server.options("S", starting="1", allowExpired="true")).start()
    publish(server, ["S.0"] * (COUNT - 100))
    with pytest.raises(LostRangeError, match=r"expired by its limits.*--allow-expired"):
        strict.finish()
    missing = loose.finish()
    assert missing == (COUNT - len(loose.sequences), 0) and missing.expired > 0
    with pytest.raises(LostRangeError, match=r"the read at 1:.*--allow-expired"):
        HeadwaterSource(server.options("S", starting="1"))
    assert Read(server.options("S", starting="1", allowExpired="true")).finish() == (0, 0)
    with pytest.raises(LostRangeError, match="expired by its limits"):
        strictly_earliest(server)


def strictly_earliest(server: Any) -> None:
    read = Read(server.options("S", allowExpired="false")).start()
    publish(server, ["S.0"] * (COUNT - 100))
    read.finish()


def test_an_old_hole_is_no_loss_when_retention_passes_it(server: Any, fill: Callable) -> None:
    fill("S", messages("S"), delete=(5, 6), max_msgs=COUNT)
    read = Read(server.options("S", starting="1")).start()
    publish(server, ["S.0"] * 20)
    assert read.sequences[-1] > 30
    assert read.finish() == (0, 0)
    assert len(read.sequences) == COUNT - 2


def keyed(name: str) -> list[tuple[str, bytes, None]]:
    return [(f"{name}.{i}", b"x" * SIZE, None) for i in range(COUNT)]


@pytest.mark.parametrize("subjects", ["", "S.*"])
def test_a_key_value_stream_loses_rows_to_a_purge(
    server: Any, fill: Callable, subjects: str
) -> None:
    fill("S", keyed("S"), max_msgs_per_subject=1)
    read = Read(server.options("S", subjects=subjects)).start()
    purge(server, "S")
    with pytest.raises(LostRangeError, match="lost to a purge"):
        read.finish()


@pytest.mark.parametrize("subjects", ["", "S.0"])
def test_rows_expire_by_a_new_limit_per_subject(
    server: Any, fill: Callable, subjects: str
) -> None:
    fill("S", messages("S"))
    read = Read(server.options("S", subjects=subjects)).start()

    async def limit(connection: Any, js: Any) -> None:
        info = await js.stream_info("S")
        info.config.max_msgs_per_subject = 10
        await js.update_stream(info.config)

    server.run(limit)
    expired, lost = read.finish()
    assert expired > 0 and lost == 0
    planned = COUNT // 2 if subjects else COUNT
    assert len(read.sequences) + expired == planned


def test_new_values_replace_old_ones_without_loss(server: Any, fill: Callable) -> None:
    fill("S", keyed("S"), max_msgs_per_subject=1)
    read = Read(server.options("S")).start()
    publish(server, [f"S.{i}" for i in range(1200, 1400)])
    assert read.finish() == (200, 0)
    assert len(read.sequences) == COUNT - 200


@pytest.mark.parametrize("more", FILTERED)
def test_ranges_know_their_rows(server: Any, fill: Callable, more: dict[str, str]) -> None:
    gone = (1, 3, 4, 700, 1599)
    fill("S", messages("S"), delete=gone)
    options = parse_options(server.options("S", partitions="7", **more))
    odd_only = more.get("subjects") == "S.0"
    held = {n for n in range(1, COUNT + 1) if n not in gone and (n % 2 or not odd_only)}
    for work in plan_ranges(options):
        assert work.planned == len(held.intersection(range(work.start, work.end + 1)))


def test_counts_under_traffic_are_never_too_large(server: Any, fill: Callable) -> None:
    fill("S", messages("S"), delete=(100,), max_msgs_per_subject=COUNT)
    with traffic(server, "S.0"):
        ranges = plan_ranges(parse_options(server.options("S", partitions="9", subjects="S.0")))
    held = range(1, ranges[-1].end + 1)
    for work in ranges:
        odd = sum(1 for n in held if work.start <= n <= work.end and (n % 2 or n > COUNT))
        assert odd - 20 <= work.planned <= odd


def info(first: int, last: int, messages: int, **config: Any) -> dict[str, Any]:
    state = {"first_seq": first, "last_seq": last, "messages": messages, "bytes": messages * 100}
    return {"config": config, "state": state, "ts": "2026-11-22T01:00:00Z"}


WORK = SequenceRange(
    *("S", "then", 101, 200),
    planned=100,
    plan_first=1,
    plan_last=1000,
    first_ts="2026-11-22T00:00:00Z",
    last_ts="2026-11-22T00:50:00Z",
)


@pytest.mark.parametrize(
    ("now", "missing", "wanted"),
    [
        (info(1, 1000, 990), 10, (0, 10)),
        (info(151, 1000, 850), 50, (0, 50)),
        (info(151, 2000, 1850, max_msgs=1850), 50, (50, 0)),
        (info(151, 2000, 1850, max_msgs=1850), 60, (50, 10)),
        (info(151, 2000, 1849, max_msgs=1850), 50, (0, 50)),
        (info(151, 2000, 1850, max_msgs=1850, discard="new"), 50, (0, 50)),
        (info(301, 2000, 1700, max_age=3600 * 10**9), 100, (100, 0)),
        (info(301, 2000, 1700, max_age=3700 * 10**9), 100, (0, 100)),
        (info(1001, 2000, 1000, max_age=1200 * 10**9), 100, (0, 100)),
        (info(1, 1030, 1000, max_msgs_per_subject=1), 50, (30, 20)),
        (info(1, 1030, 1000, max_msgs_per_subject=5, allow_rollup_hdrs=True), 50, (50, 0)),
        (info(1, 1000, 1000, allow_msg_ttl=True), 50, (50, 0)),
    ],
)
def test_what_the_first_sequence_says(
    now: dict[str, Any], missing: int, wanted: tuple[int, int]
) -> None:
    assert classify(WORK, missing, ReadPositions(), now) == wanted


@pytest.mark.parametrize(
    ("then", "now", "left", "wanted"),
    [
        (-1, 10, 10, (50, 0)),
        (20, 10, 990, (50, 0)),
        (10, 10, 990, (0, 50)),
        (-1, 10, 0, (0, 50)),
        (None, 10, 990, (0, 50)),
    ],
)
def test_a_limit_per_subject_that_was_lowered(
    then: int | None, now: int, left: int, wanted: tuple[int, int]
) -> None:
    """It removes any old messages; each subject that it cuts keeps as many as it allows."""
    work = replace(WORK, per_subject=then)
    after = info(1, 1000, left, max_msgs_per_subject=now)
    assert classify(work, 50, ReadPositions(), after) == wanted


@pytest.mark.parametrize(
    ("holes", "messages", "config", "wanted"),
    [
        (0, 1840, {"max_msgs": 1850}, (50, 0)),
        (0, 1840, {"max_msgs": 1851}, (0, 50)),
        (150, 1840, {"max_msgs": 1850}, (50, 0)),
        (151, 1840, {"max_msgs": 1850}, (0, 50)),
        (None, 1840, {"max_msgs": 1850}, (0, 50)),
        (0, 1840, {"max_bytes": 187_000, "max_msg_size": 500}, (50, 0)),
        (0, 1840, {"max_bytes": 188_000, "max_msg_size": 500}, (0, 50)),
    ],
)
def test_deletes_since_the_plan_keep_a_stream_below_its_limit(
    holes: int | None, messages: int, config: dict[str, int], wanted: tuple[int, int]
) -> None:
    """Ten sequences above the first, 151, lost their message; 150 old holes may be passed."""
    work = replace(WORK, plan_holes=holes)
    assert classify(work, 50, ReadPositions(), info(151, 2000, messages, **config)) == wanted


def test_rows_that_were_delivered_do_not_excuse_missing_ones() -> None:
    positions = ReadPositions()
    positions.add(ReadPosition(140, 40, 0))
    now = info(151, 2000, 1850, max_msgs=1850)
    assert classify(WORK, 25, positions, now) == (10, 15)


def test_marks_are_bounded() -> None:
    positions = ReadPositions()
    for number in range(1, 20_000):
        positions.add(ReadPosition(number, number, 0))
    near = positions.below(10_000)
    assert near is not None and 9_900 <= near.sequence < 10_000
    assert positions.below(1) is None
