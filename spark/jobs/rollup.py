"""Rollup: telemetry per device, metric and time window, written as Parquet.

A message is {"device": str, "metric": str, "t_us": int, "value": number, "id": str}. `t_us`
is microseconds since 1970; instead of it there may be "ts" (RFC 3339), or nothing, and then
the time at which the stream took the message in counts. `id` may be missing.

The stream is read once. The same decoded rows feed the rollup and the proof that each message
of the range was counted once: distinct (stream, sequence), and distinct ids.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headwater.spark.jobs.job import (
    check_output,
    checked_source,
    job_session,
    load,
    missing_rows,
    span_micros,
)
from headwater.spark.jobs.watch import JobProgress, watched
from headwater.spark.read.account import ReadAccount

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUE_SCHEMA = "device string, metric string, t_us long, ts timestamp, value double, id string"
_FORMAT = {
    "columns": "stream,sequence,timestamp",
    "metadataPrefix": "_",
    "valueFormat": "json",
    "valueSchema": VALUE_SCHEMA,
}
_OURS = {name.lower() for name in _FORMAT} | {"headers", "mode", "account"}


@dataclass(frozen=True)
class RollupResult:
    """What a rollup did.

    `rows` were aggregated into `groups` rows of Parquet in `path`; it is the sum of their
    counts. `read` messages came out of the streams, `invalid` of them were no telemetry.
    `distinct` is the number of distinct (stream, sequence) among those read, `duplicates` is
    `read` minus `distinct`. `planned` is what the streams held when the read was planned. Of
    it, `expired` messages were removed by the streams' own limits before they could be read,
    and `lost` ones are missing for another reason. `ids` counts messages with an id,
    `distinct_ids` the distinct ones, `duplicate_ids` the difference.
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
    distinct_ids: int
    duplicate_ids: int
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
) -> RollupResult:
    """Read, aggregate, write, prove.

    `source` are options of `format("headwater")`; stream is the one that is needed. `path` is
    a folder for Parquet files: with `overwrite` its old content is replaced, else it must not
    exist. `progress` is called about four times a second from another thread. Without a
    session, a local one is started, and stopped at the end.

    Raises OptionError, FileExistsError, the source's errors, and Spark's with those in them.
    """
    started = time.monotonic()
    check_rollup(source, path, window, overwrite)
    with job_session("rollup", spark) as session:
        return _rolled_up(session, source, path, window, overwrite, progress, started)


def _rolled_up(
    spark: "SparkSession",
    source: Mapping[str, str],
    path: str,
    window: str,
    overwrite: bool,
    progress: Callable[[JobProgress], None] | None,
    started: float,
) -> RollupResult:
    account = ReadAccount(spark)
    rows = _telemetry(load(spark, source, **_FORMAT, **account.options)).persist()
    try:
        with watched(spark, "aggregate", progress) as enter:
            mode = "overwrite" if overwrite else "errorifexists"
            _rollup(rows, span_micros(window, "window")).write.mode(mode).parquet(path)
            enter("verify")
            proof = _proof(rows)
            written = _written(spark, path)
    finally:
        rows.unpersist()
    expired, lost = missing_rows(account.total, proof["distinct"])
    return RollupResult(
        rows=written["rows"],
        groups=written["groups"],
        read=proof["read"],
        invalid=proof["read"] - written["rows"],
        distinct=proof["distinct"],
        duplicates=proof["read"] - proof["distinct"],
        planned=account.total.planned,
        expired=expired,
        lost=lost,
        ids=proof["ids"],
        distinct_ids=proof["distinct_ids"],
        duplicate_ids=proof["ids"] - proof["distinct_ids"],
        path=path,
        seconds=round(time.monotonic() - started, 3),
    )


def check_rollup(source: Mapping[str, str], path: str, window: str, overwrite: bool) -> None:
    """Raise what can be known to be wrong before anything is started: options, window, output,
    streams and servers."""
    span_micros(window, "window")
    check_output(path, overwrite)
    checked_source("rollup", source, _OURS)


def _telemetry(frame: "DataFrame") -> "DataFrame":
    """Columns that the rollup and its proof need; rows that are no telemetry have no device.

    A corrupt message without a time may have had one, which cannot be read: it must not count
    at the time of its arrival.
    """
    from pyspark.sql import functions as f

    whole = f.expr("device IS NOT NULL AND metric IS NOT NULL AND value IS NOT NULL")
    whole &= f.expr("_corrupt_record IS NULL OR t_us IS NOT NULL OR ts IS NOT NULL")
    moment = f.coalesce("t_us", f.unix_micros("ts"), f.unix_micros("_timestamp"))
    return frame.select(
        f.col("_stream").alias("stream"),
        f.col("_sequence").alias("sequence"),
        f.when(whole, f.col("device")).alias("device"),
        "metric",
        moment.alias("t_us"),
        "value",
        "id",
    )


def _rollup(rows: "DataFrame", micros: int) -> "DataFrame":
    """One row per device, metric and window, sorted within each file."""
    from pyspark.sql import functions as f

    start = f.col("t_us") - f.expr(f"pmod(t_us, {micros})")
    grouped = rows.where("device IS NOT NULL").groupBy("device", "metric", start.alias("window_us"))
    totals = grouped.agg(
        f.count("*").alias("count"),
        f.min("value").alias("min"),
        f.max("value").alias("max"),
        f.avg("value").alias("avg"),
        f.sum("value").alias("sum"),
        f.max_by("value", f.struct("t_us", "sequence")).alias("last"),
        f.min("sequence").alias("first_seq"),
        f.max("sequence").alias("last_seq"),
    )
    return totals.select(
        "device",
        "metric",
        f.timestamp_micros("window_us").alias("window_start"),
        f.timestamp_micros(f.col("window_us") + f.lit(micros)).alias("window_end"),
        *("count", "min", "max", "avg", "sum", "last", "first_seq", "last_seq"),
    ).sortWithinPartitions("device", "metric", "window_start")


def _proof(rows: "DataFrame") -> dict[str, int]:
    """Count rows, distinct (stream, sequence), ids and distinct ids; all of them exactly.

    Sequences are counted in bitmaps of 32768 each, which map tasks merge before the shuffle.
    """
    from pyspark.sql import functions as f

    position = f.bitmap_bit_position("sequence")
    buckets = rows.groupBy("stream", f.bitmap_bucket_number("sequence").alias("bucket")).agg(
        f.count("*").alias("read"),
        f.count("id").alias("ids"),
        f.bitmap_count(f.bitmap_construct_agg(position)).alias("distinct"),
    )
    sums = buckets.agg(
        *(f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in ("read", "ids", "distinct"))
    ).collect()[0]
    distinct_ids = 0
    if sums["ids"]:
        distinct_ids = rows.agg(f.count_distinct("id")).collect()[0][0]
    return {**sums.asDict(), "distinct_ids": distinct_ids}


def _written(spark: "SparkSession", path: str) -> dict[str, int]:
    """What the Parquet files say: summed counts and number of groups."""
    from pyspark.sql import functions as f

    counts = f.coalesce(f.sum("count"), f.lit(0)).alias("rows")
    frame = spark.read.parquet(path).agg(counts, f.count("*").alias("groups"))
    return frame.collect()[0].asDict()
