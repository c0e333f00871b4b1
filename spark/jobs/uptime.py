"""Uptime: when was each device offline, by the silence of its messages."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headwater.spark.jobs.events import OURS, EventKind, read_events, silences
from headwater.spark.jobs.job import (
    MAX_LISTED,
    check_output,
    checked_source,
    job_session,
    kept_findings,
    missing_rows,
    planned_rows,
    span_micros,
)
from headwater.spark.jobs.watch import JobProgress, watched
from headwater.spark.read.account import ReadAccount

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class UptimeResult:
    """When devices were offline.

    `intervals` of silence longer than `silence_us` were found. A device is looked at from its
    first message to `until_us`, the newest message of all. `findings` are the first 1000
    intervals: {"key", "from_us", "until_us", "open"}; an open one lasts still. `devices` are
    the first 1000 devices, those with the least uptime first: {"key", "messages",
    "first_us", "last_us", "offline_us", "uptime"}, the uptime from 0 to 1. `unknown` messages
    were of no device. `read` of `planned` messages came; `expired` and `lost` ones did not.
    Times are microseconds since 1970.
    """

    keys: int
    intervals: int
    offline_now: int
    offline_us: int
    silence_us: int
    until_us: int
    unknown: int
    read: int
    planned: int
    expired: int
    lost: int
    findings: list[dict[str, Any]]
    devices: list[dict[str, Any]]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, for JSON."""
        return asdict(self)


def check_uptime(source: Mapping[str, str], silence: str, out: str | None, overwrite: bool) -> None:
    """Raise what can be known to be wrong before anything is started."""
    span_micros(silence, "--silence")
    if out is not None:
        check_output(out, overwrite)
    checked_source("uptime", source, OURS)


def run_uptime(
    source: Mapping[str, str],
    silence: str,
    kind: EventKind | None = None,
    out: str | None = None,
    overwrite: bool = False,
    progress: Callable[[JobProgress], None] | None = None,
    spark: "SparkSession | None" = None,
) -> UptimeResult:
    """Find the times in which a device said nothing for longer than `silence`, such as 30s.

    An interval begins with the device's last message before it, and ends with its next one.
    `kind` says what a device is, and by which time. `out` takes all intervals as Parquet.

    Raises OptionError, FileExistsError, the source's errors, and Spark's with those in them.
    """
    started = time.monotonic()
    kind = kind or EventKind()
    check_uptime(source, silence, out, overwrite)
    micros = span_micros(silence, "--silence")
    planned = planned_rows(source, progress)
    with (
        job_session("uptime", spark) as session,
        watched(session, "read", progress, planned) as enter,
    ):
        account = ReadAccount(session)
        events = read_events(session, source, kind, account).persist()
        try:
            sums = _sums(events)
            until = sums["until_us"] or 0
            enter("search")
            found = _intervals(events, micros, until).persist()
            totals = _totals(found)
            findings = kept_findings(found, ["key", "from_us"], out, overwrite)
            devices = _devices(events, found, until)
            found.unpersist()
        finally:
            events.unpersist()
    expired, lost = missing_rows(account.total, sums["read"])
    return UptimeResult(
        **{**sums, "until_us": until},
        **totals,
        silence_us=micros,
        planned=account.total.planned,
        expired=expired,
        lost=lost,
        findings=findings,
        devices=devices,
        seconds=round(time.monotonic() - started, 3),
    )


def _sums(events: "DataFrame") -> dict[str, int]:
    from pyspark.sql import functions as f

    return events.agg(
        f.count("*").alias("read"),
        f.count_distinct("key").alias("keys"),
        f.count_if(f.col("key").isNull()).alias("unknown"),
        f.max(f.expr("CASE WHEN key IS NOT NULL THEN t_us END")).alias("until_us"),
    ).collect()[0].asDict()


def _intervals(events: "DataFrame", micros: int, until: int) -> "DataFrame":
    """Columns key, from_us, until_us, open."""
    from pyspark.sql import functions as f

    known = events.where("key IS NOT NULL")
    last = known.groupBy("key").agg(f.max("t_us").alias("from_us"))
    still = last.select("*", f.lit(until).alias("until_us"), f.lit(True).alias("open"))
    ended = silences(known, micros).select("*", f.lit(False).alias("open"))
    return ended.union(still.where(f.col("until_us") - f.col("from_us") > micros))


def _totals(found: "DataFrame") -> dict[str, int]:
    from pyspark.sql import functions as f

    return found.agg(
        f.count("*").alias("intervals"),
        f.count_if("open").alias("offline_now"),
        f.coalesce(f.sum(f.col("until_us") - f.col("from_us")), f.lit(0)).alias("offline_us"),
    ).collect()[0].asDict()


def _devices(events: "DataFrame", found: "DataFrame", until: int) -> list[dict[str, Any]]:
    """Devices with their uptime, the least first."""
    from pyspark.sql import functions as f

    seen = events.where("key IS NOT NULL").groupBy("key").agg(
        f.count("*").alias("messages"), f.min("t_us").alias("first_us"),
        f.max("t_us").alias("last_us"),
    )
    away = found.groupBy("key").agg(f.sum(f.col("until_us") - f.col("from_us")).alias("away"))
    offline = f.coalesce("away", f.lit(0)).alias("offline_us")
    rows = seen.join(away, "key", "left").select(
        "key", "messages", "first_us", "last_us", offline
    )
    whole = f.greatest(f.lit(until) - f.col("first_us"), f.lit(1))
    uptime = (1 - f.col("offline_us") / whole).alias("uptime")
    ordered = rows.select("*", uptime).orderBy("uptime", "key")
    return [row.asDict() for row in ordered.limit(MAX_LISTED).collect()]
