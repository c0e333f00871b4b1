"""Rollup: telemetry per device, metric and time window, written as Parquet.

A message is {"device": str, "metric": str, "t_us": int, "value": number, "id": str}. `t_us`
is microseconds since 1970; instead of it there may be "ts" (RFC 3339), or nothing, and then
the time at which the stream took the message in counts. `id` may be missing.

The stream is read once. Readers add up what they read; the parts, and proofs of which sequences
they are of, are all that Spark has. So the proof that each message of the range was counted once
is of the same rows as the windows.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headwater.spark.errors import SourceError
from headwater.spark.jobs.job import (
    check_output,
    checked_source,
    job_session,
    load,
    missing_rows,
    planned_rows,
    span_micros,
)
from headwater.spark.jobs.watch import JobProgress, watched
from headwater.spark.jobs.window_source import MICROS, WindowSource
from headwater.spark.jobs.windows import finished, merge
from headwater.spark.read.account import ReadAccount

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUE_SCHEMA = "device string, metric string, t_us long, ts timestamp, value double, id string"
FORMAT = {
    "columns": "stream,sequence,timestamp",
    "metadataPrefix": "_",
    "valueFormat": "json",
    "valueSchema": VALUE_SCHEMA,
}
OURS = {name.lower() for name in FORMAT} | {"headers", "mode", "account"}


@dataclass(frozen=True)
class RollupResult:
    """What a rollup did.

    `rows` were aggregated into `groups` rows of Parquet in `path`; it is the sum of their
    counts. `read` messages came out of the streams, `invalid` of them were no telemetry.
    `distinct` is the number of distinct (stream, sequence) among those read, `duplicates` is
    `read` minus `distinct`. `planned` is what the streams held when the read was planned. Of
    it, `expired` messages were removed by the streams' own limits before they could be read,
    and `lost` ones are missing for another reason. `ids` counts messages with an id,
    `distinct_ids` the distinct ones, `duplicate_ids` the difference: None if nobody asked.
    """

    rows: int
    groups: int
    read: int
    invalid: int
    distinct: int
    duplicates: int
    planned: int
    expired: int
    lost: int
    ids: int
    distinct_ids: int | None
    duplicate_ids: int | None
    path: str
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, for JSON."""
        return asdict(self)


def run_rollup(
    source: Mapping[str, str],
    path: str,
    window: str = "1m",
    overwrite: bool = False,
    progress: Callable[[JobProgress], None] | None = None,
    spark: "SparkSession | None" = None,
    count_ids: bool = False,
) -> RollupResult:
    """Read, aggregate, write, prove.

    `source` are options of `format("headwater")`; stream is the one that is needed. `path` is
    a folder for Parquet files: with `overwrite` its old content is replaced, else it must not
    exist. `count_ids` reads the streams once more to count distinct ids. `progress` is called
    about four times a second from another thread. Without a session, a local one is started,
    and stopped at the end.

    Raises OptionError, FileExistsError, the source's errors, SourceError when the files have
    other counts than the readers, and Spark's with those in them.
    """
    started = time.monotonic()
    check_rollup(source, path, window, overwrite)
    with job_session("rollup", spark) as session:
        return _rolled_up(
            session, source, path, window, overwrite, count_ids, progress, started
        )


def _rolled_up(
    spark: "SparkSession",
    source: Mapping[str, str],
    path: str,
    window: str,
    overwrite: bool,
    count_ids: bool,
    progress: Callable[[JobProgress], None] | None,
    started: float,
) -> RollupResult:
    account = ReadAccount(spark)
    spark.dataSource.register(WindowSource)
    micros = span_micros(window, "window")
    options = {**source, **FORMAT, **account.options, MICROS: str(micros)}
    parts = spark.read.format(WindowSource.name()).options(**options).load().persist()
    try:
        planned = planned_rows(source, progress)
        with watched(spark, "aggregate", progress, planned, account) as enter:
            mode = "overwrite" if overwrite else "errorifexists"
            merged = merge(parts.where("device IS NOT NULL"))
            finished(merged, micros).write.mode(mode).parquet(path)
            enter("verify")
            proof = _proof(parts)
            written = _written(spark, path)
            distinct_ids = _distinct_ids(spark, source) if count_ids else None
    finally:
        parts.unpersist()
    if written["rows"] != proof.valid:
        raise SourceError(
            f"{proof.valid} messages went into the windows, and {written['rows']} are in {path}: "
            "executors may have ended under way. Run the job again"
        )
    expired, lost = missing_rows(account.total, proof.rows - proof.repeats)
    return RollupResult(
        rows=written["rows"],
        groups=written["groups"],
        read=proof.rows,
        invalid=proof.rows - proof.valid,
        distinct=proof.rows - proof.repeats,
        duplicates=proof.repeats,
        planned=account.total.planned,
        expired=expired,
        lost=lost,
        ids=proof.ids,
        distinct_ids=distinct_ids,
        duplicate_ids=None if distinct_ids is None else proof.ids - distinct_ids,
        path=path,
        seconds=round(time.monotonic() - started, 3),
    )


def check_rollup(source: Mapping[str, str], path: str, window: str, overwrite: bool) -> None:
    """Raise what can be known to be wrong before anything is started: options, window, output,
    streams and servers."""
    span_micros(window, "window")
    check_output(path, overwrite)
    checked_source("rollup", source, OURS)


@dataclass(frozen=True)
class Proof:
    """Messages read, of them telemetry, with an id, and read more than once."""

    rows: int = 0
    valid: int = 0
    ids: int = 0
    repeats: int = 0


def _proof(parts: "DataFrame") -> Proof:
    """Add up what the readers say. Where two of them read one stretch, one was too many."""
    total = Proof()
    highest: dict[str, int] = {}
    proofs = parts.where("device IS NULL").select(
        "stream", "first_seq", "last_seq", "count", "valid", "ids", "repeats"
    )
    # A reader gives one proof for each stream: so few that Spark need not sort them.
    for row in sorted(proofs.collect(), key=lambda row: (row["stream"], row["first_seq"])):
        overlap = min(row["count"], max(0, highest.get(row["stream"], 0) - row["first_seq"] + 1))
        highest[row["stream"]] = max(highest.get(row["stream"], 0), row["last_seq"])
        total = Proof(
            total.rows + row["count"],
            total.valid + row["valid"],
            total.ids + row["ids"],
            total.repeats + max(row["repeats"], overlap),
        )
    return total


def _distinct_ids(spark: "SparkSession", source: Mapping[str, str]) -> int:
    """Distinct ids, exactly: the streams are read once more, and Spark keeps all ids on disk."""
    from pyspark.sql import functions as f

    only = {**FORMAT, "columns": "sequence", "valueSchema": "id string"}
    found = load(spark, source, **only).agg(f.count_distinct("id")).collect()[0][0]
    return int(found)


def _written(spark: "SparkSession", path: str) -> dict[str, int]:
    """What the Parquet files say: summed counts and number of groups."""
    from pyspark.sql import functions as f

    counts = f.coalesce(f.sum("count"), f.lit(0)).alias("rows")
    # With a schema Spark runs no job to find it.
    frame = spark.read.schema("count long").parquet(path)
    frame = frame.agg(counts, f.count("*").alias("groups"))
    return frame.collect()[0].asDict()
