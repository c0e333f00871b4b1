"""A job that follows is killed with all its processes, and started again: nothing twice or lost."""

import json
import random
import signal
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.spark.jobs.export import MANIFEST
from headwater.spark.jobs.following import follower
from headwater.spark.jobs.following.notebook import NAME
from headwater.spark.options import parse_options
from headwater.spark.write.ledger import STREAM as LEDGER
from headwater.spark.write.sink import HeadwaterWriter
from tests.slow import slow
from tests.spark.driver_process import END_S, Driver
from tests.spark.jobs.test_rollup import START, reading
from tests.waiting import until, until_seen

MESSAGES = 3_000
BATCH = 1_000
WINDOW_S = 10
KEYS = 5
PIECES, PIECE = 3, 20_000
"""Pieces of an export, and messages of one."""
pytestmark = pytest.mark.usefixtures("one_server")
"""What a job keeps does not depend on the server, so each test has one of the two."""


def write(server: Any, name: str, payloads: list[bytes], keys: list[int]) -> None:
    rows = {"subject": [f"{name}.{key}" for key in keys], "payload": payloads}
    writer = HeadwaterWriter(parse_options(server.options(name)))
    assert writer.write(iter([pa.RecordBatch.from_pydict(rows)])).rows == len(payloads)


@pytest.fixture
def again(run: Callable, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run the killed job's command once more, in the session of the tests; what it printed."""
    monkeypatch.setattr(follower, "BATCH_ROWS", str(BATCH))

    def command(*words: str, code: int = 0) -> str:
        done = run(*words[1:])
        assert done.exit_code == code, done.output
        return done.stdout

    return command


def done(out: Path) -> int:
    """The last batch that the job has done."""
    return int(json.loads((out / NAME).read_text())["batch"])


def killed_in(driver: Driver, out: Path, batch: int, seen: Callable[[int], Path]) -> int:
    """Kill all of it within a batch, at the earliest `batch`, of which `seen` is there. Which."""
    while True:

        def there(at: int = batch) -> bool:
            assert driver.alive(), driver.log[-4000:]
            return seen(at).exists()

        until_seen(there, f"batch {batch}", END_S)
        driver.hold()
        if done(out) < batch:
            driver.kill_all()
            assert done(out) == batch - 1
            return batch
        driver.release()
        batch += 1


def aggregates(out: Path, pattern: str) -> list[dict[str, Any]]:
    files = [path for path in out.glob(pattern) if path.is_file()]
    return [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]


@slow
@pytest.mark.timeout(4 * END_S)
@pytest.mark.parametrize(
    ("server", "moment"),
    [("nats-server", "begun"), ("headwater", "written")],
    indirect=["server"],
    scope="session",
)
def test_a_rollup_counts_each_message_once(
    server: Any, fill: Callable, again: Callable, driver_folder: Path, moment: str
) -> None:
    chance = random.Random(1)
    # Two hundred messages a second's window, out of order by less than the lateness.
    rows = [(chance.randrange(KEYS), i / 20 + 5 * chance.random(), i % 97) for i in range(MESSAGES)]
    payloads = [reading(f"d{key}", at, value, i) for i, (key, at, value) in enumerate(rows)]
    fill("KILLED", [])
    write(server, "KILLED", payloads, [key for key, _, _ in rows])
    out = driver_folder / "out"
    words = ["run", "rollup", "-s", server.url, "--stream", "KILLED", "--out", str(out)]
    words += ["--follow", "--once", "--window", f"{WINDOW_S}s", "--lateness", "10s"]
    words += ["--master", "local[2]"]
    sign = "_query/offsets/{}" if moment == "begun" else "batch={}/_SUCCESS"
    driver = Driver(driver_folder, "tests.spark.jobs.following.small_batches", *words)
    try:
        batch = killed_in(driver, out, 1, lambda at: out / sign.format(at))
    finally:
        driver.end()
    assert batch < MESSAGES // BATCH
    again(*words)

    truth: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for i, (key, at, value) in enumerate(rows):
        moment_us = START + int(at * 1e6)
        truth[f"d{key}", moment_us - moment_us % (WINDOW_S * 1_000_000)].append((i + 1, value))
    written = aggregates(out, "batch=*/*.parquet")
    waiting = aggregates(out, f"_state/{done(out)}/*.parquet")
    found = [(row, int(row["window_start"].timestamp() * 1e6)) for row in written]
    found += [(row, row["window_us"]) for row in waiting]
    told = [
        (row["device"], at, row["count"], row["sum"], row["first_seq"], row["last_seq"])
        for row, at in found
    ]
    assert written and waiting and not aggregates(out, "_late/*/*.parquet")
    assert sorted(told) == sorted(
        (
            *key,
            len(each),
            sum(value for _, value in each),
            min(sequence for sequence, _ in each),
            max(sequence for sequence, _ in each),
        )
        for key, each in truth.items()
    )
    totals = json.loads((out / NAME).read_text())["totals"]
    assert (totals["planned"], totals["read"], totals["lost"]) == (MESSAGES, MESSAGES, 0)


@slow
@pytest.mark.timeout(4 * END_S)
@pytest.mark.parametrize("server", ["headwater"], indirect=True, scope="session")
def test_gaps_are_counted_once(
    server: Any, fill: Callable, again: Callable, driver_folder: Path
) -> None:
    chance = random.Random(2)
    counters = [0] * KEYS
    keys, payloads, missing = [], [], set()
    for _ in range(MESSAGES):
        key = chance.randrange(KEYS)
        if counters[key] and chance.random() < 0.01:
            gap = chance.randrange(1, 4)
            missing.add((str(key), counters[key] + 1, counters[key] + gap))
            counters[key] += gap
        counters[key] += 1
        keys.append(key)
        payloads.append(b'{"n": %d}' % counters[key])
    fill("GAPK", [])
    write(server, "GAPK", payloads, keys)
    out = driver_folder / "at"
    words = ["run", "gaps", "-s", server.url, "--stream", "GAPK", "--by", "token:2"]
    words += ["--counter", "n", "--follow", "--once", "--checkpoint", str(out)]
    words += ["--master", "local[2]"]
    for batch in (0, 1):
        driver = Driver(driver_folder, "tests.spark.jobs.following.small_batches", *words)
        try:
            killed_in(driver, out, batch, lambda at: out / f"_state/{at}/_SUCCESS")
        finally:
            driver.end()
    told = driver.log + again(*words, code=1)
    lines = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    found = [each for each in lines if "totals" not in each]
    assert {(each["key"], each["first"], each["last"]) for each in found} == missing
    totals = lines[-1]["totals"]
    assert totals["gaps"] == len(missing) and totals["read"] == MESSAGES
    assert totals["missing"] == sum(last - first + 1 for _, first, last in missing)


def exported(folder: Path) -> None:
    """An export of messages 1 to PIECES * PIECE, as the job leaves it."""
    pieces = []
    for start in range(1, PIECES * PIECE, PIECE):
        sequences = range(start, start + PIECE)
        place = folder / "stream=ORIGIN" / f"from={start}"
        place.mkdir(parents=True)
        rows = {
            "subject": [f"at.{n}" for n in sequences],
            "sequence": pa.array(sequences, pa.int64()),
            "timestamp": pa.array([n * 1000 for n in sequences], pa.timestamp("us", "UTC")),
            "headers": pa.array([None] * PIECE, pa.map_(pa.string(), pa.string())),
            "payload": [b"%d" % n for n in sequences],
        }
        pq.write_table(pa.table(rows), place / "part-0.parquet")
        work = {"stream": "ORIGIN", "start": start, "end": start + PIECE - 1}
        pieces.append({"range": work, "rows": PIECE})
    said = {"id": "1", "request": {"format": "parquet"}, "pieces": pieces}
    (folder / MANIFEST).write_text(json.dumps(said))


def stopped_at(server: Any, driver: Driver, messages: int) -> None:
    """Stop the server once the target has so many: the job cannot end its step."""

    async def work(connection: Any, js: Any) -> None:
        async def there() -> bool:
            assert driver.alive(), driver.log[-4000:]
            return (await js.stream_info("HISTK")).state.last_seq >= messages

        await until(there, f"{messages} messages", END_S)
        server.process.send_signal(signal.SIGSTOP)

    server.run(work)


@pytest.mark.timeout(4 * END_S)
@pytest.mark.parametrize("server", ["nats-server"], indirect=True, scope="session")
def test_a_backfill_writes_each_message_once(
    server: Any, fill: Callable, again: Callable, driver_folder: Path
) -> None:
    out = driver_folder / "out"
    exported(out)
    fill("HISTK", [], subjects=["old.>"], duplicate_window=0.1)
    words = ["run", "backfill", "-s", server.url, "--stream", "HISTK", "--from", str(out)]
    words += ["--prefix", "old.", "--follow", "--master", "local[2]"]
    driver = Driver(driver_folder, "tests.spark.jobs.following.small_batches", *words)
    try:
        stopped_at(server, driver, PIECE + PIECE // 4)
        driver.kill_all()
    finally:
        driver.end()
        server.process.send_signal(signal.SIGCONT)
    half = server.run(lambda _, js: js.stream_info("HISTK")).state.last_seq
    assert 0 < half < PIECES * PIECE and half % PIECE
    totals = json.loads(again(*words, "--once").splitlines()[-1])["totals"]
    assert totals["rows"] + totals["already"] + totals["earlier"] == PIECES * PIECE
    assert totals["already"] == half % PIECE and totals["earlier"] == half - half % PIECE

    async def written(connection: Any, js: Any) -> list[str]:
        subscription = await js.subscribe(">", stream="HISTK", ordered_consumer=True)
        found = [await subscription.next_msg(timeout=20) for _ in range(PIECES * PIECE)]
        assert (await js.stream_info("HISTK")).state.last_seq == PIECES * PIECE
        return [each.headers["Nats-Msg-Id"] for each in found]

    ids = server.run(written)
    assert ids == [f"ORIGIN:{n}" for n in range(1, PIECES * PIECE + 1)]
    server.run(lambda _, js: js.delete_stream(LEDGER))
