"""Jobs that look for something: what was planted is found, exactly, and nothing else."""

import base64
import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headwater.spark.errors import OptionError, StreamRecreatedError
from headwater.spark.jobs.audit import run_audit
from headwater.spark.jobs.events import EventKind
from headwater.spark.jobs.export import run_export
from headwater.spark.jobs.gaps import Expectation, run_gaps
from headwater.spark.jobs.job import span_micros
from headwater.spark.jobs.uptime import run_uptime
from tests.waiting import until_state

LONG = bytes(100)
"""More than a line of base64."""


def test_spans() -> None:
    assert span_micros("10s", "window") == 10_000_000
    assert span_micros("2h", "window") == 7_200_000_000
    for wrong in ("", "1", "0m", "1w", "-1m"):
        with pytest.raises(OptionError, match="window"):
            span_micros(wrong, "window")


def test_the_page_lists_the_jobs_that_there_are() -> None:
    from headwater.spark import cli

    page = (Path(__file__).parents[3] / "docs" / "SPARK.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \|", page.partition("## Jobs")[2].partition("###")[0], re.M)
    assert listed == list(cli.run.commands)
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    assert not [name for name in listed if f"`{name}`" not in readme]


def test_a_mirror_elsewhere_gets_no_login_of_the_origin() -> None:
    from headwater.spark.cli import _mirror

    given = dict.fromkeys(("mirror_server", "mirror_stream", "mirror_domain", "mirror_creds"))
    given |= {"server": "a", "stream": "S", "domain": "d", "creds": "file"}
    origins = {"servers": "a", "stream": "S", "domain": "d", "credentialsFile": "file"}
    with pytest.raises(OptionError, match="which stream is the mirror"):
        _mirror(given)
    assert _mirror(given | {"mirror_stream": "T"}) == origins | {"stream": "T"}
    assert _mirror(given | {"mirror_domain": "e"}) == origins | {"domain": "e"}
    assert _mirror(given | {"mirror_server": "b"}) == {"servers": "b", "stream": "S"}


@pytest.mark.usefixtures("one_server")
def test_a_job_reads_what_came_between_two_times(
    server: Any, fill: Callable, run: Callable
) -> None:
    fill("TIMED", [(f"TIMED.{i}", b"", None) for i in range(10)], delete=(4,))

    async def more(connection: Any, js: Any) -> list[str]:
        moments = []
        for i in range(5):
            # What is acked was stored before the answer came.
            moments.append(datetime.now(UTC).isoformat())
            await js.publish(f"TIMED.{i}", b"")
        await js.delete_msg("TIMED", 13)
        return moments

    _, first, *_, last = server.run(more)
    words = ("gaps", "-s", server.url, "--stream", "TIMED", "--json")
    bounds = ("--starting-timestamp", first, "--ending-timestamp", last)
    found = json.loads(run(*words, *bounds).stdout)
    assert (found["planned"], found["missing"]) == (2, 1)


@pytest.mark.usefixtures("one_server")
@pytest.mark.parametrize(
    "words",
    [
        ("gaps", "--counter", "cuonter"),
        ("anomaly", "--value", "vlaue"),
        ("uptime", "--silence", "1m", "--by", "json:devcie"),
    ],
)
def test_a_mistyped_field_is_no_good_news(
    server: Any, fill: Callable, run: Callable, words: tuple[str, ...]
) -> None:
    """Nothing was found, since nothing could be looked at."""
    fill("TYPO", [("TYPO.a", b'{"device": "a", "counter": 1, "value": 2}', None)] * 3)
    done = run(*words, "-s", server.url, "--stream", "TYPO")
    assert done.exit_code == 1
    assert "none of the 3 messages has a key by" in done.stderr
    assert words[0] == "uptime" or f"{words[2]!r}" in done.stderr


@pytest.mark.usefixtures("one_server")
def test_an_audit_finds_what_a_mirror_lacks_and_has_too_much(
    spark: Any,
    server: Any,
    fill: Callable,
    run: Callable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {"Nats-Expected-Stream": "ORIGIN", "kind": "a"}
    rows = [(f"ORIGIN.{i % 3}", b"%d" % i, names if i % 2 else None) for i in range(1, 41)]
    fill("ORIGIN", rows)

    async def mirror(connection: Any, js: Any) -> None:
        from nats.js.api import StreamSource

        await js.add_stream(name="COPY", mirror=StreamSource(name="ORIGIN"), storage="memory")
        await until_state(js, "COPY", lambda state: state.last_seq == 40)

    server.run(mirror)
    try:
        sides = server.options("ORIGIN"), server.options("COPY")
        clean = run_audit(*sides, spark=spark, span=8)
        assert clean.same and clean.findings == []
        assert (clean.origin_read, clean.mirror_read, clean.ranges) == (40, 40, 6)

        async def damage(connection: Any, js: Any) -> None:
            for sequence in (10, 11, 30):
                await js.delete_msg("COPY", sequence)
            await js.delete_msg("ORIGIN", 20)

        server.run(damage)
        monkeypatch.setattr("headwater.spark.jobs.audit.run_audit", partial(run_audit, span=8))
        out = str(tmp_path / "found")
        words = ("audit", "-s", server.url, "--stream", "ORIGIN", "--mirror-stream", "COPY")
        done = run(*words, "--out", out, "--json")
        assert done.exit_code == 1, done.output
        found = json.loads(done.stdout)
        numbers = ("missing", "extra", "different", "behind", "ranges", "ranges_differing")
        assert [found[name] for name in numbers] == [3, 1, 0, 0, 6, 3]
        assert [(each["kind"], each["first"], each["last"]) for each in found["findings"]] == [
            ("missing", 10, 11), ("extra", 20, 20), ("missing", 30, 30)
        ]
        assert spark.read.parquet(out).count() == 3
        again = run(*words, "--out", out)
        assert again.exit_code == 1 and "exists" in again.stderr
        text = run(*words, "--subject", "ORIGIN.0")
        assert text.exit_code == 1 and "missing 30\nmissing 1, extra 0" in text.stdout, text.output
    finally:
        server.run(lambda _, js: js.delete_stream("COPY"))


@pytest.mark.usefixtures("one_server")
def test_an_audit_of_a_copy_that_is_behind_and_of_streams_with_limits(
    spark: Any, server: Any, fill: Callable
) -> None:
    rows = [("x", b"%d" % i, None) for i in range(1, 31)]
    fill("FIRST", [(f"FIRST.{subject}", *rest) for subject, *rest in rows])
    fill("SECOND", [(f"SECOND.{subject}", *rest) for subject, *rest in rows[:20]], max_msgs=15)
    sides = server.options("FIRST"), server.options("SECOND")
    result = run_audit(*sides, spark=spark, span=8)
    # Other subjects and times, and the limit removed the first five.
    assert (result.different, result.missing, result.extra) == (15, 0, 0)
    assert (result.expired, result.kept, result.behind) == (5, 0, 10)
    swapped = run_audit(*reversed(sides), spark=spark, span=8)
    assert (swapped.different, swapped.kept, swapped.extra) == (15, 5, 10)

    changed = [*rows[:6], ("x", b"other", None), *rows[7:]]
    for name, messages in (("ONE", rows), ("TWO", changed)):
        fill(name, [("same", *rest) for _, *rest in messages], subjects=["same"])
        off = {"name": name, "subjects": [f"{name}.off"], "storage": "memory"}
        server.run(lambda _, js, off=off: js.update_stream(**off))
    sides = server.options("ONE"), server.options("TWO")
    result = run_audit(*sides, spark=spark, with_time=False, span=8)
    assert (result.different, result.missing, result.extra) == (1, 0, 0)
    assert [(each["first"], each["kind"]) for each in result.findings] == [(7, "different")]
    with pytest.raises(OptionError, match="one stream"):
        run_audit(server.options("ONE,TWO"), sides[1], spark=spark)


def device(name: str, seconds: int, count: int) -> bytes:
    return json.dumps({"n": count, "t_us": START + seconds * 1_000_000, "device": name}).encode()


START = 1_795_230_000_000_000  # 2026-11-21T03:00:00Z
#: Seconds at which two devices are heard, and their counters: b is away twice, and starts anew.
HEARD = {
    "a": [(at, at // 10) for at in range(0, 210, 10)],
    "b": [(0, 1), (10, 2), (60, 5), (70, 5), (80, 6), (150, 1), (155, 2)],
}


def heartbeats(name: str) -> list[tuple[str, bytes, None]]:
    rows = [(at, who, count) for who, times in HEARD.items() for at, count in times]
    return [(f"{name}.{who}.beat", device(who, at, count), None) for at, who, count in sorted(rows)]


@pytest.mark.usefixtures("one_server")
def test_gaps_of_counters_and_times_are_found_exactly(
    spark: Any, server: Any, fill: Callable, run: Callable, tmp_path: Path
) -> None:
    fill("BEATS", [*heartbeats("BEATS"), ("BEATS.b.beat", b"{}", None)])
    source = server.options("BEATS", partitions="2")
    counted = run_gaps(source, Expectation(EventKind("token:2", counter="n")), spark=spark)
    assert counted.findings == [{"key": "b", "first": 3, "last": 4, "missing": 2}]
    assert (counted.gaps, counted.missing, counted.keys) == (1, 2, 2)
    assert (counted.restarts, counted.repeats, counted.unknown) == (1, 1, 1)
    assert (counted.read, counted.planned, counted.lost) == (29, 29, 0)

    out = str(tmp_path / "gaps")
    words = ("gaps", "-s", server.url, "--stream", "BEATS", "--by", "json:device")
    done = run(*words, "--message-time", "--every", "10s", "--json", "--out", out)
    assert done.exit_code == 1, done.output
    late = json.loads(done.stdout)
    assert [
        ((each["from_us"] - START) // 1_000_000, (each["until_us"] - START) // 1_000_000,
         each["missing"]) for each in late["findings"]
    ] == [(10, 60, 4), (80, 150, 6)]
    assert spark.read.parquet(out).count() == late["gaps"] == 2
    both = run(*words, "--every", "10s", "--counter", "n")
    assert both.exit_code == 2 and "state one" in both.stderr


@pytest.mark.usefixtures("one_server")
def test_gaps_of_the_largest_numbers_are_found(spark: Any, server: Any, fill: Callable) -> None:
    """A broken device counts to where 64 bits end, and has its clock there."""
    most = (1 << 63) - 1
    counts = (-most - 1, most, -most - 1, most)
    body = b'{"n": %d, "t_us": %d}'
    fill("FAR", [(f"FAR.{key}", body % (n, n), None) for key in "ab" for n in counts])
    source = server.options("FAR")
    far = run_gaps(source, Expectation(EventKind(counter="n")), spark=spark)
    assert (far.gaps, far.restarts, far.unknown) == (4, 2, 0)
    assert far.missing == 4 * (most - 1)
    first = {"key": "FAR.a", "first": -most, "last": most - 1, "missing": most - 1}
    assert far.findings[0] == first
    kind = EventKind(message_time=True)
    assert run_gaps(source, Expectation(kind, every="1h"), spark=spark).gaps == 0


@pytest.mark.usefixtures("one_server")
def test_gaps_of_sequences_are_found_over_the_bounds_of_buckets(
    spark: Any, server: Any, fill: Callable, run: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater.spark.jobs import gaps

    monkeypatch.setattr(gaps, "_BUCKET", 8)
    rows = [(f"HOLES.{i}", b"", None) for i in range(30)]
    fill("HOLES", rows, delete=(1, 5, 7, 8, 9, 16, 17, 18, 19, 20, 21, 22, 23, 24, 30))
    done = run("gaps", "-s", server.url, "--stream", "HOLES")
    assert done.exit_code == 1, done.output
    lines = done.stdout.splitlines()
    assert lines[:3] == ["HOLES missing 5", "HOLES missing 7 to 9", "HOLES missing 16 to 24"]
    assert lines[3].startswith("13 missing in 3 gaps of 1 keys")
    assert lines[4].startswith("planned 15, read 15, expired 0, lost 0")
    filtered = run("gaps", "-s", server.url, "--stream", "HOLES", "--subject", "HOLES.1")
    assert filtered.exit_code == 2 and "state --every or --counter" in filtered.stderr


@pytest.mark.usefixtures("one_server")
def test_offline_intervals_are_found_exactly(
    spark: Any, server: Any, fill: Callable, run: Callable
) -> None:
    fill("LIVE", [*heartbeats("LIVE"), ("LIVE.a.other", device("a", 500, 1), None)])
    source = server.options("LIVE", subjects="LIVE.*.beat")
    result = run_uptime(source, "40s", EventKind("token:2", message_time=True), spark=spark)
    found = [
        (each["key"], (each["from_us"] - START) // 1_000_000,
         (each["until_us"] - START) // 1_000_000, each["open"])
        for each in result.findings
    ]
    assert found == [("b", 10, 60, False), ("b", 80, 150, False), ("b", 155, 200, True)]
    assert (result.keys, result.intervals, result.offline_now) == (2, 3, 1)
    assert [(each["key"], each["offline_us"]) for each in result.devices] == [
        ("b", 165_000_000), ("a", 0)
    ]
    assert result.devices[0]["uptime"] == pytest.approx(35 / 200)
    assert (result.read, result.planned, result.lost, result.unknown) == (28, 28, 0, 0)

    words = ("uptime", "-s", server.url, "--stream", "LIVE", "--by", "token:2", "--message-time")
    text = run(*words, "--subject", "LIVE.*.beat", "--silence", "1m")
    assert text.exit_code == 0, text.output
    first, *_, last, proof = text.stdout.splitlines()
    assert first == "b offline 2026-11-21T03:01:20.000+00:00 to 2026-11-21T03:02:30.000+00:00"
    assert last.startswith("1 intervals of 2 devices, 70.0 s in all; offline now 0")
    assert proof.startswith("planned 28, read 28, expired 0, lost 0")
    for wrong in ("soon", "0s"):
        assert run(*words, "--silence", wrong).exit_code == 2
    with pytest.raises(OptionError, match="token:N"):
        EventKind("token:0")


@pytest.mark.usefixtures("one_server")
def test_a_clock_that_is_ahead_makes_nobody_silent(
    spark: Any, server: Any, fill: Callable
) -> None:
    """By the message from 2100, all other devices were offline until then."""
    now = time.time_ns() // 1000
    ahead = device("c", (4_102_444_800_000_000 - START) // 1_000_000, 1)
    rows = [
        (f"AHEAD.{who}.beat", b'{"t_us": %d}' % (now - ago * 1_000_000), None)
        for who, agos in (("a", (90, 60, 30, 1)), ("b", (130, 20)), ("c", (30, 5)))
        for ago in agos
    ]
    fill("AHEAD", [*rows[:-1], ("AHEAD.c.beat", ahead, None), rows[-1]])
    source, kind = server.options("AHEAD"), EventKind("token:2", message_time=True)
    found = run_uptime(source, "100s", kind, spark=spark)
    assert [(each["key"], each["open"]) for each in found.findings] == [("b", False)]
    assert found.offline_us == 110_000_000 and found.keys == 3
    gaps = run_gaps(source, Expectation(kind, every="100s"), spark=spark)
    assert [(each["key"], each["missing"]) for each in gaps.findings] == [("b", 1)]


def test_an_export_goes_on_where_it_stopped(
    spark: Any, server: Any, fill: Callable, run: Callable, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from headwater.spark.jobs import export

    rows = [
        (f"OUT.{i}", b'a,"\n%d\xff' % i + LONG, {"k": f"v{i}"} if i % 2 else None)
        for i in range(30)
    ]
    fill("OUT", rows)
    out = tmp_path / "out"
    source = server.options("OUT", partitions="6", starting="1")
    whole, written = export._export, []

    def stops(spark: Any, source: Any, folder: Any, form: Any, work: Any) -> dict[str, int]:
        found = whole(spark, source, folder, form, work)
        written.append(work["range"]["start"])
        if len(written) == 2:
            raise InterruptedError
        return found

    monkeypatch.setattr(export, "_export", stops)
    with pytest.raises(InterruptedError):
        run_export(source, str(out), spark=spark, piece=2)
    first = sorted((out / "stream=OUT" / "from=1").glob("*.parquet"))
    with pytest.raises(FileExistsError):
        run_export(source, str(out), spark=spark, piece=2)
    with pytest.raises(OptionError, match="format 'parquet', not 'csv'"):
        run_export(source, str(out), "csv", resume=True, spark=spark)

    async def later(connection: Any, js: Any) -> None:
        await js.publish("OUT.late", b"")
        await js.purge_stream("OUT", seq=6)

    server.run(later)
    result = run_export(source, str(out), resume=True, spark=spark)
    # The second piece was written and not noted, so it is written again; the first one is not.
    assert written == [1, 11, 11, 21] and (result.pieces, result.resumed) == (3, 1)
    assert (result.rows, result.read_back, result.planned, result.lost) == (30, 30, 30, 0)
    assert first == sorted((out / "stream=OUT" / "from=1").glob("*.parquet"))
    found = {row.sequence: row for row in spark.read.parquet(str(out)).collect()}
    assert sorted(found) == list(range(1, 31))
    assert [bytes(found[i + 1].payload) for i in range(30)] == [row[1] for row in rows]

    again = run("export", "-s", server.url, "--stream", "OUT", "--out", str(out))
    assert again.exit_code == 1 and "--resume" in again.stderr
    for form in ("csv", "json"):
        place = str(tmp_path / form)
        words = ("export", "-s", server.url, "--stream", "OUT", "--out", place, "--format", form)
        done = run(*words, "--json")
        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout)
        assert told["rows"] == told["read_back"] == told["planned"] == 26
    (record, *_) = sorted((tmp_path / "json").rglob("part-*.json"))
    line = json.loads(record.read_text().splitlines()[0])
    assert base64.b64decode(line["payload"]) == b'a,"\n5\xff' + LONG
    assert line["headers"] == {"k": "v5"}
    at_microsecond = found[line["sequence"]].timestamp.timestamp()
    assert datetime.fromisoformat(line["timestamp"]).timestamp() == at_microsecond
    records = [path.read_text() for path in (tmp_path / "csv").rglob("part-*.csv")]
    assert sum(text.count("\n") for text in records) == 26 + len(records)

    server.run(lambda _, js: js.delete_stream("OUT"))
    fill("OUT", rows[:1])
    with pytest.raises(StreamRecreatedError):
        run_export(source, str(out), resume=True, spark=spark)


RANGED = [
    ("rollup", "--out", "{}/rollup"),
    ("gaps",),
    ("anomaly", "--value", "n"),
    ("uptime", "--silence", "5s"),
    ("export", "--out", "{}/export"),
]


def test_expired_messages_are_an_error_or_are_allowed(
    server: Any, fill: Callable, run: Callable, tmp_path: Path
) -> None:
    """A start that is gone is an error before Spark is needed; its advice is an option there is."""
    fill("AGED", heartbeats("AGED"), max_msgs=20)
    for words in RANGED:
        name, *more = (word.format(tmp_path) for word in words)
        begin = [name, "-s", server.url, "--stream", "AGED", "--starting", "3", *more]
        refused = run(*begin)
        assert refused.exit_code == 1 and "--allow-expired" in refused.stderr, refused.output
        also = run(*begin[:5], "--no-allow-expired", *begin[5:])
        assert also.exit_code == 1 and "--allow-expired" in also.stderr
        if name in ("gaps", "export"):
            allowed = run(*begin, "--allow-expired", "--json")
            told = json.loads(allowed.stdout)
            assert (allowed.exit_code, told["planned"], told["lost"]) == (0, 20, 0), allowed.output


@pytest.mark.parametrize(
    "words",
    [
        ("rollup", "--out", "{}/out"),
        ("gaps",),
        ("gaps", "--follow"),
        ("anomaly", "--value", "v"),
        ("uptime", "--silence", "5s"),
        ("audit", "--mirror-stream", "STARTM"),
        ("audit", "--mirror-stream", "STARTM", "--follow"),
        ("export", "--out", "{}/out"),
        ("export", "--out", "{}/out", "--follow"),
    ],
)
def test_only_who_goes_on_starts_at_the_end(
    server: Any,
    fill: Callable,
    tmp_path: Path,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from headwater.spark import cli, cli_running

    class StartedError(Exception):
        """Spark would be started."""

    def start(*_: Any) -> None:
        raise StartedError

    monkeypatch.setattr(cli_running, "session", start)
    fill("STARTS", [("STARTS.x", b"", None)])
    fill("STARTM", [])
    begin = ["-s", server.url, "--stream", "STARTS", "--starting", "latest"]
    given = [word.format(tmp_path) for word in words[1:]]
    done = CliRunner().invoke(cli.spark, ["run", words[0], *begin, *given])
    if words == ("gaps", "--follow"):
        assert isinstance(done.exception, StartedError)
    else:
        assert done.exit_code == 2, done.output
        assert "nothing behind latest" in done.stderr or "leave --starting away" in done.stderr
