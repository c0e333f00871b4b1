"""The rows of the table: what Spark does, beside its control, in one session."""

import json
import statistics
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.servers import HOST, Server
from bench.spark.cost import cheapest, cost_of, server_cpu, spark_cpu, spark_processes
from bench.spark.prepared import SCHEMAS
from bench.spark.processor_group import ProcessorGroup, processor_group

#: Between two looks at how far a query is.
POLL_SECONDS = 0.1
#: Columns that are read of telemetry.
FIELDS = SCHEMAS["json"]
PARTITIONS = 8
LAST = 10
#: Cores of the session.
CORES = 2
#: What two partitions must do of one.
TWO_TO_ONE = 1.7
#: Runs of each query before one counts.
WARM_RUNS = 3
#: Of a core, for a partition's JVM and Python: with two of them half of two cores stays free.
SHARE = 0.4


@dataclass(frozen=True)
class Amounts:
    """Messages of a stream, bytes of a raw one, runs of each query, microbatches, and those that
    run before them."""

    messages: int = 2_000_000
    size: int = 100
    rounds: int = 8
    batches: int = 40
    warm: int = 10


@dataclass(frozen=True)
class Figure:
    """One row: what it is, its value, and the floor or the ceiling that the value must keep."""

    title: str
    value: float
    unit: str
    floor: float | None = None
    ceiling: float | None = None

    @property
    def met(self) -> bool:
        above = self.floor is None or self.value >= self.floor
        return above and (self.ceiling is None or self.value <= self.ceiling)

    def line(self) -> str:
        """The row for people."""
        bound = f"at least {self.floor:g}" if self.floor is not None else ""
        bound = f"at most {self.ceiling:g}" if self.ceiling is not None else bound
        mark = "" if not bound else f"  ({bound}{'' if self.met else ': MISSED'})"
        return f"{self.title:58} {self.value:>10,.3f} {self.unit}{mark}"


@dataclass(frozen=True)
class Bench:
    """What rows work with. Streams RAW and JSON are on `ours`, RAW is on `theirs`, too; `page` is
    the port of ours' monitoring."""

    spark: Any
    ours: Server
    theirs: Server
    page: int
    amounts: Amounts

    def stream(self, server: Server, name: str, **options: str) -> Any:
        """A reader of one partition, unless the options say otherwise."""
        where = {"servers": f"nats://{HOST}:{server.port}", "stream": name, "partitions": "1"}
        return self.spark.read.format("headwater").options(**where | options)

    def prepared(self, kind: str) -> Any:
        """The control's frame."""
        amounts = self.amounts
        options = {"kind": kind, "rows": str(amounts.messages), "size": str(amounts.size)}
        return self.spark.read.format("prepared").options(**options).load()

    def rates(self, *frames: Any) -> list[float]:
        """Million rows per second of processor time, all columns, into nothing, of each frame.

        All run in turn, and some times before they count: the JVM compiles what is used often.
        """
        costs: list[list[float]] = [[] for _ in frames]
        warm = min(WARM_RUNS, self.amounts.rounds)
        for number in range(self.amounts.rounds + warm):
            for found, frame in zip(costs, frames, strict=True):
                cpu = cost_of(partial(drop, frame)).cpu
                if number >= warm:
                    found.append(cpu)
        return [self.amounts.messages / 1e6 / min(found) for found in costs]


def drop(frame: Any) -> None:
    """Compute a frame, and throw it away."""
    frame.write.format("noop").mode("overwrite").save()


def raw(bench: Bench) -> Iterator[Figure]:
    """Raw rows in blocks and over the wire, beside prepared batches."""
    prepared, blocks, wire = bench.rates(
        bench.prepared("raw"),
        bench.stream(bench.ours, "RAW", readPath="block").load(),
        bench.stream(bench.theirs, "RAW", readPath="wire").load(),
    )
    unit = "M rows/CPU s"
    yield Figure("raw rows, prepared Arrow batches (control)", prepared, unit)
    yield Figure("raw rows, block read", blocks, unit)
    share = blocks / prepared
    yield Figure("raw rows, block read / prepared", share, "", floor=0.85)
    yield Figure("raw rows, nats-server by the wire", wire, unit)
    wanted = min(0.7, 0.5 * prepared)
    yield Figure("raw rows, nats-server / least wanted", wire / wanted, "", 1.0)


def decoded(bench: Bench) -> Iterator[Figure]:
    """Three fields of JSON, decoded by the reader, beside prepared columns and `from_json`."""
    from pyspark.sql import functions as f

    reader = bench.stream(bench.ours, "JSON", valueFormat="json").schema(FIELDS)
    cached = bench.stream(bench.ours, "JSON", columns="payload").load().persist()
    drop(cached)
    value = f.from_json(f.col("payload").cast("string"), FIELDS)
    prepared, ours, native = bench.rates(
        bench.prepared("json"),
        reader.load(),
        cached.select(value.alias("value")).select("value.*"),
    )
    cached.unpersist(True)
    unit = "M rows/CPU s"
    yield Figure("JSON, 3 fields, prepared Arrow batches (control)", prepared, unit)
    yield Figure("JSON, 3 fields, from_json over cached binary (control)", native, unit)
    yield Figure("JSON, 3 fields, block read", ours, unit)
    yield Figure("JSON, 3 fields, block read / prepared", ours / prepared, "", floor=0.7)
    yield Figure("JSON, 3 fields, block read / from_json", ours / native, "", floor=3.0)


def rollup(bench: Bench) -> Iterator[Figure]:
    """The job rollup over a read of what it reads."""
    from headwater.spark.jobs.rollup import VALUE_SCHEMA, run_rollup

    where = {"servers": f"nats://{HOST}:{bench.ours.port}", "stream": "JSON", "partitions": "1"}
    options = {"valueFormat": "json", "valueSchema": VALUE_SCHEMA, "metadataPrefix": "_"}
    columns = "stream,sequence,timestamp"
    frame = bench.stream(bench.ours, "JSON", columns=columns, **options).load()
    reading = cheapest(lambda: drop(frame), bench.amounts.rounds).cpu
    with tempfile.TemporaryDirectory() as folder:

        def run(number: int) -> None:
            done = run_rollup(where, f"{folder}/{number}", spark=bench.spark)
            assert done.rows == done.planned == bench.amounts.messages

        costs = [cost_of(lambda number=number: run(number)).cpu  # type: ignore[misc]
                 for number in range(bench.amounts.rounds)]
    yield Figure("rollup / reading alone", min(costs) / reading, "", ceiling=2.2)


def filtered(bench: Bench) -> Iterator[Figure]:
    """A filter that selects the last messages: what leaves the server for it."""
    stored = _page(bench, "/jsz")["bytes"]
    frame = bench.stream(bench.ours, "RAW").load()
    before = _page(bench, "/varz")["out_bytes"]
    found = frame.where(f"sequence > {bench.amounts.messages - LAST}").collect()
    assert len(found) == LAST
    share = (_page(bench, "/varz")["out_bytes"] - before) / stored
    yield Figure(f"bytes sent for the last {LAST} messages / stored", 100 * share, "%", None, 1.0)


def _page(bench: Bench, path: str) -> Any:
    with urllib.request.urlopen(f"http://{HOST}:{bench.page}{path}", timeout=30) as answer:
        return json.load(answer)


def microbatch(bench: Bench) -> Iterator[Figure]:
    """Streaming queries with one message for each of their partitions in each microbatch.

    Spark's own source of rows has no Python at all: what it takes is Spark's part.
    """
    rows = (bench.amounts.batches + bench.amounts.warm) * PARTITIONS
    where = {
        "servers": f"nats://{HOST}:{bench.ours.port}",
        "stream": "RAW",
        "partitions": str(PARTITIONS),
        "maxMsgsPerTrigger": str(PARTITIONS),
        "starting": str(bench.amounts.messages - rows + 1),
    }
    control = {"kind": "raw", "rows": str(rows), "partitions": str(PARTITIONS)}
    spark = bench.spark
    each = {"rowsPerBatch": PARTITIONS, "numPartitions": PARTITIONS}
    frame = spark.readStream.format("rate-micro-batch").options(**each).load()
    cost, own = _microbatches(bench, frame)
    yield Figure(f"microbatch, {PARTITIONS} partitions, Spark's rows (control)", own, "ms")
    yield Figure("the same, processor time", cost, "ms")
    frame = spark.readStream.format("prepared").options(**control).load()
    cost, prepared = _microbatches(bench, frame)
    yield Figure(f"microbatch, {PARTITIONS} partitions, prepared (control)", prepared, "ms")
    yield Figure("the same, processor time", cost, "ms")
    frame = spark.readStream.format("headwater").options(**where).load()
    cost, ours = _microbatches(bench, frame)
    yield Figure(
        f"microbatch overhead, {PARTITIONS} partitions, median", ours, "ms", None, 120.0
    )
    yield Figure("the same, processor time", cost, "ms")


def _microbatches(bench: Bench, frame: Any) -> tuple[float, float]:
    """Milliseconds of processors and, at the median, of the clock for one microbatch. The first
    ones, which start workers, are left out of the median."""
    wanted = bench.amounts.batches
    with tempfile.TemporaryDirectory() as folder:
        writer = frame.writeStream.format("noop").option("checkpointLocation", folder)
        before = spark_cpu()
        query = writer.start()
        _batches_done(query, wanted + bench.amounts.warm)
        cpu = spark_cpu() - before
        spans = [
            one.durationMs["triggerExecution"]
            for one in query.recentProgress
            if one.numInputRows == PARTITIONS
        ]
        query.stop()
    return 1e3 * cpu / (wanted + bench.amounts.warm), statistics.median(spans[-wanted:])


def _batches_done(query: Any, wanted: int) -> None:
    """Wait for so many microbatches: Spark's own source never ends."""
    while (last := query.lastProgress) is None or last.batchId + 1 < wanted:
        assert not query.awaitTermination(POLL_SECONDS)


def partitions(bench: Bench) -> Iterator[Figure]:
    """Two tasks beside one, by the clock, and what the cores leave for the second one: the server,
    the Python worker and the JVM work at the same time for one task, too.

    So two tasks of this machine's cores tell little. With a share of a core for each task, and the
    server outside of it, all that is no lack of cores shows. The floor is that one's, if the system
    lets shares be given.
    """
    frames = [
        bench.stream(bench.ours, "RAW", readPath="block", partitions=count).load()
        for count in ("1", "2")
    ]
    drop(frames[0])
    with processor_group(spark_processes()) as group:
        floor = None if group else TWO_TO_ONE
        yield from _on_all_cores(bench, frames, floor)
        if group:
            rate = _with_shares(bench, frames, group)
            title = f"the same, {SHARE:g} of a core for each partition in Spark"
            yield Figure(title, rate, "", floor=TWO_TO_ONE)


def _on_all_cores(bench: Bench, frames: list[Any], floor: float | None) -> Iterator[Figure]:
    """One partition and two, in turn, with all that the machine has."""
    spans: list[list[float]] = [[], []]
    busy = []
    for _ in range(bench.amounts.rounds + 1):
        for found, frame in zip(spans, frames, strict=True):
            before = server_cpu(bench.ours.pid)
            cost = cost_of(partial(drop, frame))
            found.append(cost.wall)
            if found is spans[0]:
                busy.append((cost.cpu + server_cpu(bench.ours.pid) - before) / cost.wall)
    rate, most = min(spans[0]) / min(spans[1]), CORES / max(busy)
    yield Figure("cores that one partition keeps busy, its server included", max(busy), "")
    yield Figure(f"two partitions / one, the most that {CORES} cores leave", most, "")
    yield Figure("rate of two partitions / of one, block read", rate, "", floor=floor)


def _with_shares(bench: Bench, frames: list[Any], group: ProcessorGroup) -> float:
    """How much faster two are than one, when Spark has its share of a core for each."""
    spans: list[list[float]] = [[], []]
    for _ in range(bench.amounts.rounds + 1):
        for count, (found, frame) in enumerate(zip(spans, frames, strict=True), 1):
            group.allow(SHARE * count)
            found.append(cost_of(partial(drop, frame)).wall)
    return min(spans[0]) / min(spans[1])


#: By name; all of them have a session with two cores, which one partition does not use.
ROWS: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    "raw": raw,
    "json": decoded,
    "rollup": rollup,
    "filter": filtered,
    "microbatch": microbatch,
    "partitions": partitions,
}


def recorded(figures: list[Figure]) -> str:
    """The figures as JSON."""
    return json.dumps([vars(one) | {"met": one.met} for one in figures])


def write_record(path: str, figures: list[Figure]) -> None:
    """Put them into a file."""
    Path(path).write_text(recorded(figures) + "\n", encoding="utf-8")
