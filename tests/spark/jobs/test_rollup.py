"""The rollup: its numbers, its proof, its command."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headwater.spark.errors import OptionError
from headwater.spark.jobs.plots import plot_rollup
from headwater.spark.jobs.rollup import run_rollup
from headwater.spark.jobs.watch import JobProgress

START = 1_795_230_000_000_000  # 2026-11-21T03:00:00Z


def reading(device: str, seconds: float, value: float, number: int, **more: Any) -> bytes:
    body = {"device": device, "metric": "cpu.0.percent", "value": value, "id": f"m{number}"}
    body["t_us"] = START + int(seconds * 1_000_000)
    return json.dumps(body | more).encode()


def messages(name: str) -> list[tuple[str, bytes, None]]:
    rows = [reading(f"edge-{i % 2}", i * 10, float(i), i) for i in range(24)]
    rows.append(b"not telemetry")
    rows.append(b'{"device":"edge-0","metric":"cpu.0.percent","t_us":1}')
    rows.append(reading("edge-0", 5, 100.0, 3))
    iso = {"device": "edge-9", "metric": "m", "value": 1, "ts": "2026-11-21T03:00:01.5Z"}
    rows.append(json.dumps(iso).encode())
    return [(f"{name}.x", row, None) for row in rows]


@pytest.mark.usefixtures("both_servers")
def test_numbers_and_proof(spark: Any, server: Any, fill: Callable, tmp_path: Path) -> None:
    fill("ROLL", messages("ROLL"), delete=(3,))
    out = str(tmp_path / "out")
    seen: list[Any] = []
    source = server.options("ROLL", partitions="3")
    result = run_rollup(source, out, spark=spark, progress=seen.append, count_ids=True)
    assert (result.read, result.rows, result.invalid) == (27, 25, 2)
    assert (result.distinct, result.duplicates) == (27, 0)
    assert (result.planned, result.expired, result.lost) == (27, 0, 0)
    assert (result.ids, result.distinct_ids, result.duplicate_ids) == (24, 23, 1)
    assert result.path == out and result.seconds > 0
    assert all(part.done <= part.total for part in seen)
    assert JobProgress("aggregate", 27, 27, "rows") in seen
    plot_rollup(spark, out, str(tmp_path / "rollup.svg"))
    assert "edge-9 m" in (tmp_path / "rollup.svg").read_text()

    rows = {
        (row.device, row.metric, int(row.window_start.timestamp())): row
        for row in spark.read.parquet(out).collect()
    }
    assert len(rows) == result.groups == 9
    first = rows["edge-0", "cpu.0.percent", START // 1_000_000]
    # Sequences 1, 5 and 27: values 0, 4 and the late 100 at second 5; sequence 3 was deleted.
    assert (first["count"], first.min, first.max, first.sum, first.avg) == (3, 0, 100, 104, 104 / 3)
    assert (first.last, first.first_seq, first.last_seq) == (4.0, 1, 27)
    assert (first.window_end - first.window_start).total_seconds() == 60
    assert rows["edge-9", "m", START // 1_000_000]["count"] == 1


def test_an_empty_stream_and_a_folder_that_exists(
    spark: Any, server: Any, fill: Callable, tmp_path: Path
) -> None:
    fill("NONE", [])
    out = str(tmp_path / "out")
    result = run_rollup(server.options("NONE"), out, spark=spark)
    assert (result.rows, result.groups, result.duplicates, result.lost) == (0, 0, 0, 0)
    with pytest.raises(FileExistsError):
        run_rollup(server.options("NONE"), out, spark=spark)
    assert run_rollup(server.options("NONE"), out, overwrite=True, spark=spark).rows == 0


def test_a_part_of_two_streams(spark: Any, server: Any, fill: Callable, tmp_path: Path) -> None:
    for name in ("LEFT", "RIGHT"):
        rows = [reading(name, i, i, i) for i in range(10)]
        fill(name, [(f"{name}.{i % 2}", row, None) for i, row in enumerate(rows)])
    source = server.options("LEFT,RIGHT", starting="3", ending="8", subjects="*.0")
    result = run_rollup(source, str(tmp_path / "out"), spark=spark, count_ids=True)
    assert (result.rows, result.distinct, result.lost) == (6, 6, 0)
    # Both streams used the same ids: the proof by id is over all of them.
    assert (result.ids, result.distinct_ids) == (6, 3)


def test_a_stream_at_its_limit(spark: Any, server: Any, fill: Callable, tmp_path: Path) -> None:
    """Messages go while the job runs: they are a number, and the job ends well."""
    rows = [(f"FULL.{i}", reading("edge-0", i, i, i), None) for i in range(2000)]
    fill("FULL", rows, max_msgs=2000)
    stop = threading.Event()

    async def traffic(connection: Any, js: Any) -> None:
        while not stop.is_set():
            await js.publish("FULL.x", reading("edge-1", 1, 1.0, 1))

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.run, traffic)
        try:
            source = server.options("FULL", partitions="2")
            result = run_rollup(source, str(tmp_path / "out"), spark=spark)
        finally:
            stop.set()
        running.result()
    assert result.planned == result.distinct + result.expired == 2000
    assert result.rows == result.distinct and result.expired > 0
    assert (result.lost, result.duplicates) == (0, 0)


def test_a_time_that_cannot_be_read_is_not_now(
    spark: Any, server: Any, fill: Callable, tmp_path: Path
) -> None:
    odd = [{"t_us": "soon"}, {"ts": "later"}, {"t_us": "x", "ts": "2026-11-21T03:00:00Z"}]
    # Before year 1, and behind year 9999, up to what an integer holds.
    odd += [{"t_us": -(2**63)}, {"t_us": 2**63 - 1}, {"t_us": 253_402_300_800_000_000}]
    good = {"device": "d", "metric": "m", "value": 1}
    fill("ODD", [("ODD.x", json.dumps(good | time).encode(), None) for time in [*odd, {"id": 7}]])
    result = run_rollup(server.options("ODD"), str(tmp_path / "out"), spark=spark)
    assert (result.read, result.rows, result.invalid) == (7, 1, 6)


def test_options_of_the_job_are_not_for_the_caller(server: Any, spark: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="set by the rollup"):
        run_rollup(server.options("S", valueFormat="raw"), str(tmp_path / "out"), spark=spark)


@pytest.mark.usefixtures("one_server")
def test_the_command(
    spark: Any, server: Any, fill: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater.spark import cli, cli_running

    @contextmanager
    def running(master: str, verbose: bool) -> Iterator[Any]:
        yield spark

    monkeypatch.setattr(cli_running, "session", running)
    fill("CMD", messages("CMD"))
    base = ["run", "rollup", "-s", server.url, "--out"]
    runner = CliRunner()
    done = runner.invoke(cli.spark, [*base, str(tmp_path / "a"), "--stream", "CMD", "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert (result["rows"], result["duplicates"], result["lost"]) == (26, 0, 0)

    text = runner.invoke(cli.spark, [*base, str(tmp_path / "b"), "--stream", "CMD"])
    assert text.exit_code == 0 and "26 rows into 9 groups" in text.stdout

    again = runner.invoke(cli.spark, [*base, str(tmp_path / "a"), "--stream", "CMD"])
    assert again.exit_code == 1 and "overwrite it (--overwrite)" in again.stderr
    fill("POINTLESS", [("POINTLESS.x", b"{}", None)])
    arguments = [*base, str(tmp_path / "d"), "--stream", "POINTLESS", "--json"]
    pointless = runner.invoke(cli.spark, arguments)
    assert pointless.exit_code == 1 and json.loads(pointless.stdout)["invalid"] == 1
    assert "none of the 1 messages is telemetry" in pointless.stderr


def test_mistakes_are_told_before_spark_starts(
    server: Any, fill: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater.spark import cli, cli_running

    monkeypatch.setattr(cli_running, "session", lambda *_: pytest.fail("Spark was started"))
    fill("REAL", messages("REAL"), delete=(1,))
    fill("WORK", messages("WORK"), retention="workqueue")

    def run(url: str, stream: str, *more: str) -> Any:
        out = str(tmp_path / "new")
        arguments = ["run", "rollup", "-s", url, "--stream", stream, "--out", out, *more]
        return CliRunner().invoke(cli.spark, arguments)

    for done, code, words in [
        (run(server.url, "NOSUCH"), 1, "'NOSUCH' does not exist"),
        (run(server.url, "WORK"), 1, "retention 'workqueue'"),
        (run(server.url, "REAL", "--out", str(tmp_path)), 1, "exists"),
        (run(server.url, "REAL", "--starting", "1"), 1, "--allow-expired"),
        (run("nats://127.0.0.1:1", "REAL"), 1, "cannot connect to 127.0.0.1:1"),
        (run(server.url, "REAL", "--retry-timeout", "soon"), 2, "retryTimeout"),
        (run(server.url, "REAL", "--starting", "latest"), 2, "nothing behind latest: start at a"),
    ]:
        assert done.exit_code == code and words in done.stderr, done.output
