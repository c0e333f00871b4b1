"""Jobs that follow: whatever is planted is told once, whenever they stop and go on."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import StreamSource

from headwater.spark.cli_follow import until_interrupted
from headwater.spark.errors import OptionError, SourceError
from headwater.spark.jobs.following.notebook import NAME, Notebook
from tests.slow import slow
from tests.spark.jobs.test_rollup import START, reading
from tests.waiting import until_state

pytestmark = pytest.mark.usefixtures("one_server")
"""What a job keeps does not depend on the server; reads are compared elsewhere."""


def publish(server: Any, messages: list[tuple[str, bytes]]) -> None:
    async def work(connection: Any, js: Any) -> None:
        for subject, payload in messages:
            await js.publish(subject, payload)

    server.run(work)


def lines(done: Any, code: int = 0) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The findings and the totals that a command told."""
    assert done.exit_code == code, done.output
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return found[:-1], found[-1]["totals"]


def plot(folder: Path) -> tuple[str, str]:
    """The words of a command that draws."""
    return "--plot", str(folder / "plot.svg")


def plotted(folder: Path) -> str:
    """The picture as text; matplotlib says in comments what the texts of an SVG are."""
    path = folder / "plot.svg"
    return path.read_text() if path.exists() else ""


def test_a_notebook_is_of_one_job(tmp_path: Path) -> None:
    folder = tmp_path / "at"
    book = Notebook(str(folder), {"job": "gaps", "stream": "A"})
    book.begin()
    book.done(0, {"keys": 1}, {"gaps": 2})
    book.done(1, {"keys": 3}, {"gaps": 2, "late": 1})
    again = Notebook(str(folder), {"job": "gaps", "stream": "A"})
    assert (again.batch, again.memo, again.totals) == (1, {"keys": 3}, {"gaps": 4, "late": 1})
    with pytest.raises(OptionError, match="has stream 'A', not 'B'"):
        Notebook(str(folder), {"job": "gaps", "stream": "B"})
    (folder / NAME).write_text("{")
    with pytest.raises(OptionError, match="cannot be read"):
        Notebook(str(folder), {"job": "gaps", "stream": "A"})
    (folder / NAME).unlink()
    (folder / "x").touch()
    with pytest.raises(OptionError, match="other files"):
        Notebook(str(folder), {})


def test_a_full_device_is_told_and_what_was_there_stays(tmp_path: Path) -> None:
    """Without room a notebook has the last batch that it could write, and goes on when there is."""
    folder = tmp_path / "at"
    folder.mkdir()
    (folder / f"{NAME}.new").symlink_to("/dev/full")
    book = Notebook(str(folder), {"job": "gaps"})
    with pytest.raises(SourceError, match=f"{NAME} cannot be written: No space left on device"):
        book.begin()
    assert list(folder.iterdir()) == []
    book = Notebook(str(folder), {"job": "gaps"})
    book.begin()
    book.done(0, {}, {"gaps": 2})
    (folder / f"{NAME}.new").symlink_to("/dev/full")
    with pytest.raises(SourceError, match="No space left"):
        book.done(1, {}, {"gaps": 2})
    again = Notebook(str(folder), {"job": "gaps"})
    assert (again.batch, again.totals) == (0, {"gaps": 2})
    assert [each.name for each in folder.iterdir()] == [NAME]


@pytest.fixture
def usual_signals() -> Iterator[None]:
    """A benchmark that ran in this process leaves a handler, which would end it."""
    usual = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_a_signal_cuts_off_is_no_failure(
    number: signal.Signals, usual_signals: None
) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    def call() -> None:
        """As a call into the JVM, which turns the interruption into an error of its own."""
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt as error:
            raise OSError("the connection is broken") from error

    with until_interrupted():
        call()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    with pytest.raises(OSError, match="without"), until_interrupted():
        raise OSError("without a signal")


def jobs(spark: Any) -> int:
    """How many jobs Spark has begun."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


def test_a_rollup_writes_each_window_once_and_counts_what_is_late(
    spark: Any, server: Any, fill: Callable, run: Callable, tmp_path: Path
) -> None:
    def rows(seconds: list[float], device: str = "a") -> list[tuple[str, bytes]]:
        return [("ROLLF.x", reading(device, at, at, int(at))) for at in seconds]

    fill("ROLLF", [])
    out = str(tmp_path / "out")
    words = ("rollup", "-s", server.url, "--stream", "ROLLF", "--out", out, "--follow", "--once")
    words += ("--window", "1m", "--lateness", "30s")
    far = reading("a", 0, 1.0, 1, t_us=2**63 - 1)
    publish(server, [*rows([0, 10, 50, 70]), ("ROLLF.x", b"none"), ("ROLLF.x", far)])
    _, totals = lines(run(*words, *plot(tmp_path)))
    assert not plotted(tmp_path)
    # The newest message is of second 70: the watermark is at 40, and no window is closed.
    assert (totals["read"], totals["rows"], totals["waiting_rows"]) == (6, 0, 4)
    assert (totals["invalid"], totals["late"]) == (2, 0)
    # Second 55 is old, and in time; the watermark goes to second 95.
    publish(server, rows([55, 125]))
    _, totals = lines(run(*words, *plot(tmp_path)))
    assert "averages per window" in plotted(tmp_path)
    assert (totals["rows"], totals["groups"], totals["waiting_rows"]) == (4, 1, 2)
    # The first window is written; the second one ends at 120.
    publish(server, rows([20, 100], "b"))
    before = jobs(spark)
    _, totals = lines(run(*words))
    # Four actions: to look, to write late and closed windows, and to keep the rest. Adaptive
    # execution makes a job of each stage.
    assert jobs(spark) - before <= 10
    assert (totals["late"], totals["rows"], totals["waiting_rows"]) == (1, 4, 3)
    assert (totals["planned"], totals["read"], totals["expired"], totals["lost"]) == (10, 10, 0, 0)
    (row,) = spark.read.parquet(out).collect()
    assert (row["device"], row["count"], row["min"], row["max"], row["last"]) == ("a", 4, 0, 55, 55)
    assert row["window_start"].timestamp() == START / 1e6 and row["avg"] == 115 / 4
    (late,) = spark.read.parquet(f"{out}/_late/batch=2").collect()
    assert (late["device"], late["count"], late["sum"]) == ("b", 1, 20)
    assert lines(run(*words))[1] == totals
    other = run(*words, "--window", "2m")
    assert other.exit_code == 2 and "has window '1m', not '2m'" in other.stderr


@slow
def test_a_clock_in_the_future_makes_nothing_of_others_late(
    server: Any, fill: Callable, run: Callable, tmp_path: Path
) -> None:
    now = time.time() - START / 1e6
    fill("ROLLF", [("ROLLF.x", reading("a", now, 1.0, 1), None)])
    publish(server, [("ROLLF.x", reading("wrong", now + 10**9, 1.0, 2))])
    words = ("rollup", "-s", server.url, "--stream", "ROLLF", "--out", str(tmp_path / "out"))
    words += ("--follow", "--once", "--window", "1m", "--lateness", "1m")
    totals = lines(run(*words))[1]
    assert (totals["rows"], totals["waiting_rows"]) == (0, 2)
    assert totals["watermark_us"] < time.time() * 1e6 - 60e6
    # By the wrong clock this one would be some thirty years late.
    publish(server, [("ROLLF.x", reading("a", now, 1.0, 3))])
    totals = lines(run(*words))[1]
    assert (totals["late"], totals["rows"], totals["waiting_rows"]) == (0, 0, 3)


def test_what_expires_between_two_runs_is_in_the_totals(
    server: Any, fill: Callable, run: Callable, tmp_path: Path
) -> None:
    fill("OLDF", [("OLDF.a", b"x", None)] * 10, max_msgs=10)
    words = ("gaps", "-s", server.url, "--stream", "OLDF", "--follow", "--once", "--allow-expired")
    words += ("--checkpoint", str(tmp_path / "at"))
    assert lines(run(*words))[1]["expired"] == 0
    publish(server, [("OLDF.a", b"x")] * 25)
    totals = lines(run(*words), code=1)[1]
    assert (totals["planned"], totals["read"], totals["missing"]) == (35, 20, 15)
    assert (totals["expired"], totals["lost"]) == (15, 0)


def test_gaps_are_told_across_batches_and_runs(
    server: Any, fill: Callable, run: Callable, tmp_path: Path
) -> None:
    def rows(counters: list[int], device: str = "a") -> list[tuple[str, bytes]]:
        return [(f"GAPF.{device}", b'{"n": %d}' % n) for n in counters]

    fill("GAPF", [])
    words = ("gaps", "-s", server.url, "--stream", "GAPF", "--by", "token:2", "--counter", "n")
    words += ("--follow", "--once", "--checkpoint", str(tmp_path / "at"))
    publish(server, [*rows([1, 2, 5]), *rows([10], "b"), ("GAPF.c", b"{}")])
    found, totals = lines(run(*words, *plot(tmp_path)), 1)
    assert found == [{"key": "a", "first": 3, "last": 4, "missing": 2}]
    assert plotted(tmp_path).count("2 missing in 1 gaps") == 1
    publish(server, [*rows([8, 3]), *rows([11], "b")])
    found, totals = lines(run(*words), 1)
    assert found == [{"key": "a", "first": 6, "last": 7, "missing": 2}]
    assert (totals["gaps"], totals["missing"], totals["restarts"]) == (2, 4, 1)
    assert (totals["keys"], totals["unknown"], totals["read"]) == (2, 1, 8)


@slow
def test_sequences_are_told_across_batches(
    server: Any, fill: Callable, run: Callable, tmp_path: Path
) -> None:
    words = ("gaps", "-s", server.url, "--stream", "SEQF", "--follow", "--once")
    words += ("--checkpoint", str(tmp_path / "at"))
    fill("SEQF", [("SEQF.x", b"", None)] * 6, delete=(3,))
    assert lines(run(*words), 1)[0] == [{"key": "SEQF", "first": 3, "last": 3, "missing": 1}]
    publish(server, [("SEQF.x", b"")] * 4)
    server.run(lambda connection, js: js.delete_msg("SEQF", 7))
    assert lines(run(*words), 1)[0] == [{"key": "SEQF", "first": 7, "last": 7, "missing": 1}]


def test_silences_begin_and_end(
    server: Any, fill: Callable, run: Callable, tmp_path: Path
) -> None:
    def beats(device: str, seconds: list[int]) -> list[tuple[str, bytes]]:
        texts = (b'{"t_us": %d}' % (START + at * 1_000_000) for at in seconds)
        return [(f"BEATF.{device}", text) for text in texts]

    fill("BEATF", [])
    words = ("uptime", "-s", server.url, "--stream", "BEATF", "--by", "token:2", "--silence", "30s")
    words += ("--message-time", "--follow", "--once", "--checkpoint", str(tmp_path / "at"))
    publish(server, [*beats("a", [0, 10, 20]), *beats("b", [5, 50, 60])])
    found, totals = lines(run(*words, *plot(tmp_path)))
    assert "offline for longer than 30 s" in plotted(tmp_path)
    told = [(each["key"], each["from_us"] - START, each["open"]) for each in found]
    assert told == [("b", 5_000_000, False), ("a", 20_000_000, True)]
    assert (totals["offline_now"], totals["intervals"], totals["keys"]) == (1, 1, 2)
    publish(server, beats("b", [70, 65]))
    found, totals = lines(run(*words))
    assert found == [] and totals["offline_now"] == 1
    publish(server, [*beats("a", [80]), *beats("b", [3])])
    found, totals = lines(run(*words))
    ends = [(each["key"], each["until_us"] - START, each["open"]) for each in found]
    assert ends == [("a", 80_000_000, False)]
    assert (totals["offline_now"], totals["intervals"], totals["late"]) == (0, 2, 1)
    assert totals["offline_us"] == (45 + 60) * 1_000_000


def test_an_audit_goes_on_behind_its_last_round(
    server: Any, fill: Callable, run: Callable, tmp_path: Path
) -> None:
    def grow(last: int) -> None:
        async def work(connection: Any, js: Any) -> None:
            for n in range(5):
                await js.publish("AUDF.x", b"%d" % n)
            await until_state(js, "AUDM", lambda state: state.last_seq == last)

        server.run(work)

    fill("AUDF", [])
    fill("AUDM", [], subjects=None, mirror=StreamSource(name="AUDF"))
    words = ("audit", "-s", server.url, "--stream", "AUDF", "--mirror-stream", "AUDM")
    words += ("--follow", "--once", "--checkpoint", str(tmp_path / "at"))
    grow(5)
    found, totals = lines(run(*words))
    assert found == [] and (totals["origin_read"], totals["next"]) == (5, 6)
    grow(10)
    server.run(lambda connection, js: js.delete_msg("AUDM", 8))
    found, totals = lines(run(*words, *plot(tmp_path)), 1)
    assert "mirror against origin, up to sequence 10" in plotted(tmp_path)
    assert found == [{"kind": "missing", "first": 8, "last": 8, "messages": 1}]
    assert (totals["origin_read"], totals["mirror_read"], totals["next"]) == (10, 9, 11)


def test_an_export_goes_on_behind_its_last_piece(
    spark: Any, server: Any, fill: Callable, run: Callable, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ("export", "-s", server.url, "--stream", "EXPF", "--out", str(out))
    words += ("--follow", "--once", "--pause", "1s")
    fill("EXPF", [("EXPF.x", b"%d" % n, None) for n in range(5)])
    assert lines(run(*words, *plot(tmp_path)))[1]["rows"] == 5
    assert "5 of 5 messages exported" in plotted(tmp_path)
    publish(server, [("EXPF.x", b"x")] * 3)
    totals = lines(run(*words))[1]
    assert (totals["rows"], totals["read_back"], totals["pieces"]) == (8, 8, 2)
    assert lines(run(*words))[1] | {"seconds": 0, "resumed": 1} == totals | {
        "seconds": 0, "resumed": 1
    }  # fmt: skip
    sequences = [row["sequence"] for row in spark.read.parquet(str(out)).collect()]
    assert sorted(sequences) == list(range(1, 9))
    # What went before the next round is a loss, and told as one.
    publish(server, [("EXPF.x", b"x")] * 3)
    server.run(lambda connection, js: js.purge_stream("EXPF", seq=11))
    lost = run(*words)
    assert lost.exit_code == 1 and "starts at sequence 11" in lost.stderr
    totals = lines(run(*words, "--allow-expired"))[1]
    assert (totals["rows"], totals["expired"], totals["planned"]) == (9, 2, 11)
    assert run(*words, "--ending", "9").exit_code == 2
