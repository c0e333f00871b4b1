"""Writing to streams: every id once, whatever fails, without a JVM."""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, MapType, StringType, StructType

from headwater.spark.errors import (
    ApiError,
    ConnectError,
    FencedError,
    OptionError,
    PublishError,
    SourceError,
    StreamRecreatedError,
    UnsupportedStreamError,
)
from headwater.spark.options import SourceOptions, parse_options
from headwater.spark.write import claim, patience, publisher, sink
from headwater.spark.write.claim import Attempt
from headwater.spark.write.ledger import STREAM as LEDGER
from headwater.spark.write.sink import (
    HeadwaterWriter,
    Written,
    check_columns,
    commit_batch,
    write_batch,
)
from tests.spark.conftest import end, start_server
from tests.spark.cutting_proxy import CuttingProxy
from tests.waiting import until

HEADERS = pa.map_(pa.string(), pa.string())


@pytest.fixture(autouse=True)
def quick_takeovers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs trust what they have seen for less long, and those behind them wait less."""
    monkeypatch.setattr(claim, "LOOK_S", 0.1)
    monkeypatch.setattr(sink, "TAKEOVER_S", 0.3)


def batch(name: str, numbers: range, prefix: str = "r") -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "subject": [f"{name}.{n % 3}" for n in numbers],
            "payload": [b"%d" % n for n in numbers],
            "id": [f"{prefix}{n}" for n in numbers],
        }
    )


def target(server: Any, name: str, **more: str) -> SourceOptions:
    return parse_options({"servers": server.url, "stream": name, "retryTimeout": "5", **more})


@pytest.fixture
def query(server: Any) -> Iterator[str]:
    """The id of a streaming query; what is known of it goes away with the test."""
    yield f"{uuid4()}-query"

    async def drop(connection: Any, js: Any) -> None:
        import nats.js.errors

        try:
            await js.delete_stream(LEDGER)
        except nats.js.errors.NotFoundError:
            return

    server.run(drop)


def stored(server: Any, name: str) -> list[tuple[str, bytes, dict[str, str] | None]]:
    async def work(connection: Any, js: Any) -> list[tuple]:
        state = (await js.stream_info(name)).state
        found = [await js.get_msg(name, n) for n in range(1, state.last_seq + 1)]
        return [(message.subject, message.data, message.headers) for message in found]

    return server.run(work)


def numbers(server: Any, name: str) -> list[int]:
    return [int(data) for _, data, _ in stored(server, name)]


def test_rows_become_messages(server: Any, fill: Callable) -> None:
    fill("OUT", [])
    rows = pa.RecordBatch.from_pydict(
        {
            "subject": ["OUT.a", "OUT.b", "OUT.c"],
            "payload": ["text", "", "é"],
            "headers": pa.array([[("A", "1"), ("B", "x y")], [], None], HEADERS),
            "id": ["one", "two", "one"],
        }
    )
    done = HeadwaterWriter(target(server, "OUT")).write(iter([rows]))
    assert (done.rows, done.skipped) == (2, 1)
    first, second = stored(server, "OUT")
    assert first[:2] == ("OUT.a", b"text") and second[0] == "OUT.b" and not second[1]
    assert first[2] is not None and first[2]["A"] == "1" and first[2]["B"] == "x y"
    assert first[2]["Nats-Msg-Id"] == "one"


def test_many_rows_keep_their_order(
    server: Any, fill: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "MAX_PENDING", 64)
    fill("MANY", [])
    parts = [batch("MANY", range(at, at + 700)) for at in (0, 700)]
    assert HeadwaterWriter(target(server, "MANY")).write(iter(parts)).rows == 1400

    async def ordered(connection: Any, js: Any) -> list[int]:
        subscription = await js.subscribe(">", stream="MANY", ordered_consumer=True)
        return [int((await subscription.next_msg(timeout=5)).data) for _ in range(1400)]

    assert server.run(ordered) == list(range(1400))


def test_a_broken_connection_neither_loses_nor_repeats(server: Any, fill: Callable) -> None:
    fill("CUTS", [])
    with CuttingProxy(int(server.url.rpartition(":")[2]), cuts=3, after=20_000) as proxy:
        options = target(server, "CUTS", servers=f"nats://127.0.0.1:{proxy.port}")
        HeadwaterWriter(options).write(iter([batch("CUTS", range(1000))]))
        assert proxy.connections == 4
    assert server.run(lambda _, js: js.stream_info("CUTS")).state.messages == 1000


def test_what_was_not_acknowledged_is_looked_for_when_the_stream_has_forgotten_ids(
    server: Any, fill: Callable, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was away for longer than the stream remembers ids: in the stream they are."""
    fill("AWAY", [("AWAY.x", b"-1", {"Nats-Msg-Id": "r99"})], duplicate_window=0.1)
    wait_for_quiet(server, "AWAY")
    connect, made = publisher.Connection, []

    def later(endpoint: Any) -> Any:
        if made:
            wait_for_quiet(server, "AWAY")
        made.append(1)
        return connect(endpoint)

    monkeypatch.setattr(publisher, "Connection", later)
    with CuttingProxy(int(server.url.rpartition(":")[2]), cuts=4, after=20_000) as proxy:
        proxied = f"nats://127.0.0.1:{proxy.port}"
        options = target(server, "AWAY", servers=proxied, retryTimeout="60")
        done = write_batch(options, iter([batch("AWAY", range(1000))]), query, "run-1", 0)
    assert len(made) > 1 and done.rows + done.skipped == 1000
    commit_batch(target(server, "AWAY"), [done], 0)
    ids = server.run(ids_of("AWAY"))
    # What was there before the query began is not ours, even with the id of a row.
    assert Counter(ids) == Counter([*(f"r{n}" for n in range(1000)), "r99"])


def ids_of(name: str) -> Callable[[Any, Any], Awaitable[list[str]]]:
    """All ids of a stream, in its order."""

    async def work(connection: Any, js: Any) -> list[str]:
        state = (await js.stream_info(name)).state
        subscription = await js.subscribe(">", stream=name, ordered_consumer=True)
        found = [await subscription.next_msg(timeout=20) for _ in range(state.messages)]
        return [each.headers["Nats-Msg-Id"] for each in found]

    return work


def failing(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    yield rows
    raise RuntimeError("killed")


def test_a_batch_that_is_run_again_after_the_window_of_the_stream(
    server: Any, fill: Callable, query: str
) -> None:
    fill("ONCE", [("ONCE.x", b"-1", {"Nats-Msg-Id": "r99"})], duplicate_window=0.1)
    options = target(server, "ONCE")
    with pytest.raises(RuntimeError, match="killed"):
        # More rows than may be under way, so that some are acknowledged.
        write_batch(options, failing(batch("ONCE", range(1500))), query, "run-1", 0)
    wait_for_quiet(server, "ONCE")
    before = server.run(lambda _, js: js.stream_info("ONCE")).state.messages - 1
    assert 0 < before <= 1500
    again = write_batch(options, iter([batch("ONCE", range(1500))]), query, "run-2", 0)
    assert (again.rows, again.skipped) == (1500 - before, before)
    commit_batch(options, [again], 0)
    assert server.run(lambda _, js: js.stream_info("ONCE")).state.messages == 1501
    # The driver died before Spark noted the commit: the batch comes once more.
    replayed = write_batch(options, iter([batch("ONCE", range(1500))]), query, "run-3", 0)
    assert replayed.replayed and replayed.rows == 0
    commit_batch(options, [replayed], 0)
    # What was there before the query began is not ours, even with the id of a row.
    other = write_batch(options, iter([batch("ONCE", range(99, 100), "s")]), query, "run-3", 1)
    assert other.rows == 1
    commit_batch(options, [other], 1)


def test_a_batch_write_of_one_name_is_done_once(
    server: Any, fill: Callable, query: str
) -> None:
    fill("NAMED", [], duplicate_window=0.1)
    options = target(server, "NAMED", writeId=query)
    with pytest.raises(RuntimeError, match="killed"):
        HeadwaterWriter(options).write(failing(batch("NAMED", range(1500))))
    wait_for_quiet(server, "NAMED")
    before = server.run(lambda _, js: js.stream_info("NAMED")).state.messages
    assert 0 < before <= 1500
    writer = HeadwaterWriter(options)
    parts = [batch("NAMED", range(1500)), batch("NAMED", range(1500, 1600))]
    done = [writer.write(iter([part])) for part in parts]
    assert [(one.rows, one.skipped) for one in done] == [(1500 - before, before), (100, 0)]
    writer.commit(done)
    # Whoever runs the program again writes nothing more.
    again = HeadwaterWriter(options)
    again.commit([again.write(iter([part])) for part in parts])
    assert server.run(lambda _, js: js.stream_info("NAMED")).state.messages == 1600


def wait_for_quiet(server: Any, name: str) -> None:
    """Until the stream has forgotten the ids: a message that it had is taken again."""

    async def work(connection: Any, js: Any) -> None:
        named = {"Nats-Msg-Id": f"probe-{uuid4()}"}
        probe = await js.publish(f"{name}.x", b"-2", headers=named)

        async def forgotten() -> Any:
            found = await js.publish(f"{name}.x", b"-2", headers=named)
            return None if found.duplicate else found

        answer = await until(forgotten)
        await js.delete_msg(name, probe.seq)
        await js.delete_msg(name, answer.seq)

    server.run(work)


def test_the_slower_of_two_drivers_stops(server: Any, fill: Callable, query: str) -> None:
    fill("FENCE", [])
    options = target(server, "FENCE")
    rows = batch("FENCE", range(10))
    slow = write_batch(options, iter([rows]), query, "run-1", 0)
    fast = write_batch(options, iter([rows]), query, "run-2", 0)
    assert (slow.rows, fast.rows, fast.skipped) == (10, 0, 10)
    commit_batch(options, [fast], 0)
    with pytest.raises(FencedError, match="one checkpoint"):
        commit_batch(options, [slow], 0)
    with pytest.raises(FencedError, match="this one stops"):
        commit_batch(options, [slow, fast], 0)
    for number in (0, 1):
        with pytest.raises(FencedError, match="one checkpoint"):
            write_batch(options, iter([rows]), query, "run-1", number)
    assert sorted(numbers(server, "FENCE")) == list(range(10))


def test_a_driver_that_stood_still_publishes_nothing_more(
    server: Any, fill: Callable, query: str
) -> None:
    """Another one wrote its batch meanwhile, and the stream has forgotten the ids since then."""
    fill("HELD", [], duplicate_window=0.1)
    options = target(server, "HELD")

    def given() -> Iterator[pa.RecordBatch]:
        yield batch("HELD", range(1500))
        other = write_batch(options, iter([batch("HELD", range(3000))]), query, "run-2", 0)
        commit_batch(options, [other], 0)
        wait_for_quiet(server, "HELD")
        yield batch("HELD", range(1500, 3000))

    with pytest.raises(FencedError, match="one checkpoint"):
        write_batch(options, given(), query, "run-1", 0)
    assert Counter(server.run(ids_of("HELD"))) == Counter(f"r{n}" for n in range(3000))
    later = write_batch(options, iter([batch("HELD", range(3000, 3010))]), query, "run-2", 1)
    commit_batch(options, [later], 1)


def test_an_attempt_at_a_task_that_spark_has_begun_again_publishes_nothing_more(
    server: Any, fill: Callable, query: str
) -> None:
    """Its executor was lost to the driver, and not to the server; no id is remembered by then."""
    fill("TWICE", [], duplicate_window=0.1)
    options = target(server, "TWICE")

    def write(rows: Iterator[pa.RecordBatch], number: int) -> Written:
        return write_batch(options, rows, query, "run", 0, Attempt(3, number))

    done = []

    def given() -> Iterator[pa.RecordBatch]:
        yield batch("TWICE", range(1500))
        done.append(write(iter([batch("TWICE", range(3000))]), 2))
        wait_for_quiet(server, "TWICE")
        yield batch("TWICE", range(1500, 3000))

    with pytest.raises(FencedError, match="begun task 3 again"):
        write(given(), 0)
    # One that begins late is no newer one.
    with pytest.raises(FencedError, match="begun task 3 again"):
        write(iter([batch("TWICE", range(3000, 3001))]), 1)
    assert Counter(server.run(ids_of("TWICE"))) == Counter(f"r{n}" for n in range(3000))
    other = Attempt(4, 7)
    more = iter([batch("TWICE", range(3000, 3010))])
    done.append(write_batch(options, more, query, "run", 0, other))
    commit_batch(options, done, 0)
    # The next batch has tasks and attempts of its own.
    rows = iter([batch("TWICE", range(3010, 3020))])
    later = write_batch(options, rows, query, "run", 1, Attempt(3, 8))
    commit_batch(options, [later], 1)
    assert len(server.run(ids_of("TWICE"))) == 3020


def test_a_batch_that_means_other_rows_in_another_copy_of_the_checkpoint_is_told(
    server: Any, fill: Callable, query: str
) -> None:
    fill("COPIED", [])
    options = target(server, "COPIED")

    def write(numbers: range, number: int, run: str) -> Written:
        rows = iter([batch("COPIED", numbers)])
        done = write_batch(options, rows, query, run, number)
        commit_batch(options, [done], number)
        return done

    write(range(10), 0, "run-1")
    # The copy goes on, and then the checkpoint that it was made of, with more at once.
    write(range(10, 15), 1, "run-2")
    assert write(range(10, 15), 1, "run-3").replayed
    with pytest.raises(SourceError, match="other rows: 5 ids .* as 'r15'.*newest"):
        write(range(10, 20), 1, "run-3")
    with pytest.raises(SourceError, match="comes again, .* up to batch 1.*newest"):
        write(range(10), 0, "run-3")
    assert numbers(server, "COPIED") == list(range(15))
    # What was removed from the target since then is no sign of other rows.
    server.run(lambda connection, js: js.purge_stream("COPIED", seq=12))
    assert write(range(10, 15), 1, "run-3").replayed


def test_a_server_may_be_away_when_a_batch_begins_and_goes_on_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = [start_server(tmp_path)]
    port = int(running[0].url.rpartition(":")[2])
    connect = patience.Connection

    def waiting(endpoint: Any) -> Any:
        try:
            return connect(endpoint)
        except ConnectError:
            running.append(start_server(tmp_path, port=port))
            raise

    def given() -> Iterator[pa.RecordBatch]:
        yield large(range(90))
        end(running[-1])
        yield large(range(90, 100))

    def large(count: range) -> pa.RecordBatch:
        """What is under way are as many bytes as may be: it is sent at once."""
        payloads = [b"%100000d" % n for n in count]
        return batch("BACK", count).set_column(1, "payload", pa.array(payloads))

    monkeypatch.setattr(patience, "Connection", waiting)
    monkeypatch.setattr(publisher, "Connection", waiting)
    try:
        running[0].run(lambda _, js: js.add_stream(name="BACK", subjects=["BACK.>"]))
        options = target(running[0], "BACK", retryTimeout="30")
        end(running[-1])
        done = write_batch(options, given(), "back", "run-1", 0)
        end(running[-1])
        commit_batch(options, [done], 0)
        assert len(running) == 4 and numbers(running[-1], "BACK") == list(range(100))
        assert write_batch(options, iter([]), "back", "run-2", 0).replayed
    finally:
        end(running[-1])


def test_a_server_may_have_no_folder_for_the_ledger_just_now(tmp_path: Path) -> None:
    """nats-server removes that of an account's streams behind the last one of files, and may so
    refuse one that is made at the same time."""
    running = start_server(tmp_path)
    try:
        running.run(lambda _, js: js.add_stream(name="ROOM", storage="memory"))
        folder = tmp_path / "store" / "jetstream" / "$G" / "streams"
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.touch()
        # The server removes that, too, once it could make no folder below it.
        options = target(running, "ROOM", retryTimeout="30")
        assert write_batch(options, iter([]), "room", "run-1", 0).revision
        assert "Stream create failed" in (tmp_path / "server.log").read_text()
    finally:
        end(running)


@pytest.mark.parametrize("kind", ["headwater", "nats-server"])
def test_a_ledger_without_a_place_says_what_it_is(tmp_path: Path, kind: str) -> None:
    """The server's own words spoke of streams, and the user had made none."""
    account = "A { jetstream { max_streams: 1 }, users [ { user: a, password: a } ] }"
    running = start_server(tmp_path, f"accounts {{ {account} }}\nno_auth_user: a", kind)
    try:

        async def make(connection: Any, js: Any) -> None:
            await js.add_stream(name="ONLY", subjects=["ONLY.>"])

        running.run(make)
        with pytest.raises(ApiError, match=r"10027.*bucket headwater-spark.*nats kv add") as found:
            write_batch(target(running, "ONLY"), iter([batch("ONLY", range(3))]), "q", "run", 0)
        assert found.value.err_code == 10027
    finally:
        end(running)


def test_an_end_whose_answer_is_lost_fences_nobody(
    server: Any, fill: Callable, query: str
) -> None:
    """The entry is that of the batch itself when the ledger is asked again."""
    fill("ENDS", [])
    port = int(server.url.rpartition(":")[2])

    def commit(number: int, cuts: int, after: int) -> CuttingProxy:
        rows = batch("ENDS", range(number, number + 1))
        done = write_batch(target(server, "ENDS"), iter([rows]), query, "r", number)
        with CuttingProxy(port, cuts, after) as proxy:
            proxied = target(server, "ENDS", servers=f"nats://127.0.0.1:{proxy.port}")
            commit_batch(proxied, [done], number)
        return proxy

    whole = commit(0, 0, 0)
    assert commit(1, 1, whole.delivered - 10).connections == 2
    assert write_batch(target(server, "ENDS"), iter([]), query, "r", 1).replayed


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"subject": ["A*.b.*"], "payload": [b"x"]}, "is no subject"),
        ({"subject": ["SOUR.a"], "payload": [None]}, "must not be null"),
        ({"subject": ["SOUR.a"], "payload": [b"x"], "id": [""]}, "id must not be null"),
        ({"subject": ["SOUR.a"], "payload": [b"x" * 2_000_000]}, "larger than the server takes"),
        ({"subject": ["OTHER.a"], "payload": [b"x"]}, "another stream takes that subject"),
        ({"subject": ["SOUR.\0"], "payload": [b"x"]}, "is no subject.*control characters"),
        ({"subject": ["SOUR." + "a" * 5000], "payload": [b"x"]}, "5005 bytes: shorten subjects"),
        ({"subject": ["$JS.API.STREAM.PURGE.SOUR"], "payload": [b""]}, "is a request to the serv"),
        ({"subject": ["$SYS.REQ.SERVER.PING"], "payload": [b""]}, "is a request to the server"),
    ],
)
def test_rows_that_cannot_be_written(
    server: Any, fill: Callable, rows: dict[str, list], words: str
) -> None:
    fill("SOUR", [])
    fill("OTHER", [])
    with pytest.raises((PublishError, OptionError), match=words):
        HeadwaterWriter(target(server, "SOUR")).write(iter([pa.RecordBatch.from_pydict(rows)]))


def test_a_subject_that_the_stream_does_not_want(server: Any, fill: Callable) -> None:
    """It is told at once: the stream is there, and would not take it later."""
    fill("KNOWN", [])
    rows = pa.RecordBatch.from_pydict({"subject": ["nobody.x"], "payload": [b"x"]})
    with pytest.raises(PublishError, match=r"nobody\.x: the subjects of 'KNOWN' are KNOWN\.>"):
        HeadwaterWriter(target(server, "KNOWN", retryTimeout="600")).write(iter([rows]))


@pytest.mark.parametrize("options", [{"stream": "AWAY"}, {"stream": "", "kv": "away"}])
def test_a_target_that_was_never_there_is_told_at_once(
    server: Any, options: dict[str, str]
) -> None:
    given = {"servers": server.url, "retryTimeout": "600", **options}
    row: dict[str, Any] = {"subject": "nobody.x", "payload": b""}
    if "kv" in options:
        row = {"key": "k", "value": b"x"}
    rows = pa.RecordBatch.from_pylist([row])
    with pytest.raises(PublishError, match=r"away' does not exist.*create it|AWAY' does not exist"):
        writer = HeadwaterWriter(parse_options({k: v for k, v in given.items() if v}))
        writer.write(iter([rows]))


def test_a_stream_that_is_gone_is_waited_for(server: Any, fill: Callable) -> None:
    """It may be on its way to another node."""
    fill("GOES", [])

    def given() -> Iterator[pa.RecordBatch]:
        yield batch("GOES", range(publisher.MAX_PENDING + 1))
        server.run(lambda _, js: js.delete_stream("GOES"))
        yield batch("GOES", range(1))

    with pytest.raises(ConnectError, match=r"GOES\.[0-9]: see whether 'GOES' was deleted"):
        HeadwaterWriter(target(server, "GOES", retryTimeout="0.2")).write(given())


def test_an_unwanted_subject_behind_others_is_told(server: Any, fill: Callable) -> None:
    """The answer about the stream is not mixed up with the first message's acknowledgement."""
    fill("MIXED", [])
    subjects = ["MIXED.x", "nobody.x"]
    rows = pa.RecordBatch.from_pydict({"subject": subjects, "payload": [b"x"] * 2})
    with pytest.raises(PublishError, match=r"nobody\.x: the subjects of 'MIXED' are MIXED\.>"):
        HeadwaterWriter(target(server, "MIXED")).write(iter([rows]))


def test_a_stream_without_acknowledgements_is_no_target(
    server: Any, fill: Callable, query: str
) -> None:
    fill("MUTE", [], no_ack=True)
    with pytest.raises(UnsupportedStreamError, match="set no_ack of the stream to false"):
        HeadwaterWriter(target(server, "MUTE")).write(iter([batch("MUTE", range(1))]))
    with pytest.raises(UnsupportedStreamError, match="set no_ack of the stream to false"):
        write_batch(target(server, "MUTE"), iter([]), query, "run", 0)
    assert server.run(lambda _, js: js.stream_info("MUTE")).state.messages == 0


def test_a_full_stream_says_what_to_do(server: Any, fill: Callable) -> None:
    """It is waited for: what grows old makes room."""
    fill("FULL", [], max_msgs=3, discard="new")
    with pytest.raises(ConnectError, match="is full and has discard new. Raise its limits"):
        options = target(server, "FULL", retryTimeout="0.2")
        HeadwaterWriter(options).write(iter([batch("FULL", range(9))]))
    assert numbers(server, "FULL") == [0, 1, 2]


def test_a_header_cannot_smuggle_a_line(server: Any, fill: Callable) -> None:
    fill("LINE", [])
    headers = pa.array([[("A", "1\r\nNats-Rollup: all")]], HEADERS)
    rows = {"subject": ["LINE.a"], "payload": [b"x"], "headers": headers}
    with pytest.raises(PublishError, match="no colon or line end"):
        HeadwaterWriter(target(server, "LINE")).write(iter([pa.RecordBatch.from_pydict(rows)]))


def test_headers_of_written_messages_are_written_again(server: Any, fill: Callable) -> None:
    """A stream that was written by the sink is copied, headers and all."""
    fill("FIRST", [])
    fill("AGAIN", [])
    headers = pa.array([[("A", "1")]], HEADERS)
    for name in ("FIRST", "AGAIN"):
        rows = {"subject": [f"{name}.a"], "payload": [b"x"], "headers": headers}
        HeadwaterWriter(target(server, name)).write(iter([pa.RecordBatch.from_pydict(rows)]))
        ((_, _, found),) = stored(server, name)
        assert found is not None and found["A"] == "1"
        headers = pa.array([list(found.items())], HEADERS)


@pytest.mark.parametrize("config", [{"max_msgs_per_subject": 1}, {"retention": "workqueue"}])
def test_streams_that_forget_are_no_target_of_a_query(
    server: Any, fill: Callable, query: str, config: dict[str, Any]
) -> None:
    fill("FORGET", [], **config)
    with pytest.raises(UnsupportedStreamError, match="forgets"):
        write_batch(target(server, "FORGET"), iter([]), query, "run", 0)


def schema(**columns: Any) -> StructType:
    made = StructType()
    for name, kind in columns.items():
        made.add(name, kind)
    return made


@pytest.mark.parametrize(
    ("columns", "overwrite", "with_id", "words"),
    [
        ({"subject": "string", "payload": "binary"}, True, False, "use mode append"),
        ({"payload": "binary"}, False, False, "'subject' is missing"),
        ({"subject": "string", "payload": "string"}, False, True, "'id' is missing.*concat"),
        ({"subject": "string", "payload": "long"}, False, False, "bigint, not binary or string"),
        ({"subject": "string", "payload": "binary", "more": "integer"}, False, False, "unknown"),
        (
            {"key": "binary", "value": "binary", "partition": "integer"},
            False,
            False,
            "columns 'key', 'value', 'partition' are unknown.*Kafka.s sink is .payload. here",
        ),
        (
            {"subject": "string", "payload": "binary", "headers": ArrayType(StringType())},
            False,
            False,
            r"not map<string,string>\. Those of Kafka's sink are: map_from_entries",
        ),
    ],
)
def test_columns(columns: dict[str, Any], overwrite: bool, with_id: bool, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        check_columns(schema(**columns), overwrite, with_id)
    check_columns(schema(subject="string", payload="string", id="string"), False, True)
    headers = MapType(StringType(), StringType())
    check_columns(schema(subject="string", payload="binary", headers=headers), False, False)


def test_the_ledger_can_be_read_by_people(server: Any, fill: Callable, query: str) -> None:
    fill("SEEN", [])
    options = target(server, "SEEN")
    commit_batch(options, [write_batch(options, iter([]), query, "run-1", 4)], 4)

    async def look(connection: Any, js: Any) -> bytes:
        bucket = await js.key_value("headwater-spark")
        return (await bucket.get(f"{query}.SEEN")).value

    made = server.run(lambda _, js: js.stream_info("SEEN")).created
    entry = json.loads(server.run(look))
    assert datetime.fromisoformat(entry.pop("created")[:19] + "Z") == made.replace(microsecond=0)
    assert entry == {"batch": 4, "last": 0, "run": "run-1", "start": 0}


@pytest.mark.parametrize("how", ["deleted", "purged"])
def test_a_lost_ledger_repeats_nothing(
    server: Any, fill: Callable, query: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def lost(connection: Any, js: Any) -> None:
        if how == "purged":
            await js.purge_stream(LEDGER)
            return

        async def gone() -> bool:
            # nats-server may find messages of a stream that it has just deleted in a new one.
            await js.delete_stream(LEDGER)
            info = await js.add_stream(name=LEDGER, subjects=["$KV.headwater-spark.>"])
            return bool(info.state.messages == 0)

        await until(gone)
        await js.delete_stream(LEDGER)

    def lose() -> None:
        server.run(lost)

    fill("LOST", [], duplicate_window=0.1)
    options = target(server, "LOST")
    for number in (0, 1):
        rows = iter([batch("LOST", range(number * 50, number * 50 + 50))])
        commit_batch(options, [write_batch(options, rows, query, "run-1", number)], number)
    assert not caplog.records
    wait_for_quiet(server, "LOST")
    # The driver died before Spark noted batch 1, and the ledger is gone when it comes again.
    lose()
    again = [
        write_batch(options, iter([batch("LOST", part)]), query, "run-2", 1)
        for part in (range(50, 75), range(75, 100))
    ]
    assert [(done.rows, done.skipped) for done in again] == [(0, 25), (0, 25)]
    commit_batch(options, again, 1)
    assert "has no entry" in caplog.text and "Keep entries as long as" in caplog.text
    # The entry is whole again: the next batch looks no further than it needs to.
    caplog.clear()
    done = write_batch(options, iter([batch("LOST", range(100, 110))]), query, "run-2", 2)
    # Lost before the commit: the batch fails, and the next attempt finds what is there.
    lose()
    with pytest.raises(SourceError, match="was deleted while the query wrote a batch: start"):
        commit_batch(options, [done], 2)
    again = [write_batch(options, iter([batch("LOST", range(100, 112))]), query, "run-3", 2)]
    assert (again[0].rows, again[0].skipped) == (2, 10)
    commit_batch(options, again, 2)
    live = [row for row in live_numbers(server, "LOST") if row >= 0]
    assert live == list(range(112))


def live_numbers(server: Any, name: str) -> list[int]:
    """Payloads of the messages that were not deleted, in order."""

    async def work(connection: Any, js: Any) -> list[int]:
        subscription = await js.subscribe(">", stream=name, ordered_consumer=True)
        count = (await js.stream_info(name)).state.messages
        return [int((await subscription.next_msg(timeout=5)).data) for _ in range(count)]

    return server.run(work)


def test_a_target_that_was_made_anew_is_noticed(server: Any, fill: Callable, query: str) -> None:
    def make_anew() -> None:
        server.run(lambda connection, js: js.delete_stream("AGAIN"))
        fill("AGAIN", [])

    fill("AGAIN", [])
    options = target(server, "AGAIN")
    first, second = (iter([batch("AGAIN", range(at, at + 10))]) for at in (0, 10))
    commit_batch(options, [write_batch(options, first, query, "run", 0)], 0)
    make_anew()
    # Neither the next batch nor the same one again goes into the other stream.
    for number in (0, 1):
        with pytest.raises(StreamRecreatedError, match="up to 0 into the older.*onRecreated"):
            write_batch(options, second, query, "run", number)
    anyway = target(server, "AGAIN", onRecreated="restart")
    done = [write_batch(anyway, second, query, "run", 1)]
    # Another task of the batch finds what the first one has entered.
    third = iter([batch("AGAIN", range(20, 30))])
    done.append(write_batch(anyway, third, query, "run", 1))
    commit_batch(anyway, done, 1)
    assert numbers(server, "AGAIN") == list(range(10, 30))
    assert write_batch(options, iter([]), query, "run", 1).replayed
    # It is noticed in the middle of a batch too, before the batch counts as written.
    late = write_batch(options, iter([batch("AGAIN", range(30, 40))]), query, "run", 2)
    make_anew()
    with pytest.raises(StreamRecreatedError):
        commit_batch(anyway, [late], 2)
