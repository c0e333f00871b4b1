"""Devices that fall silent and come back, told as it happens."""

from collections.abc import Mapping
from operator import itemgetter
from typing import TYPE_CHECKING

from headwater.spark.jobs.events import OURS, EventKind, event_columns, silences
from headwater.spark.jobs.following.follower import Batch, Outcome
from headwater.spark.jobs.following.gaps import marked
from headwater.spark.jobs.following.notebook import Notebook, request_of
from headwater.spark.jobs.following.written import add_up, count_rows
from headwater.spark.jobs.job import checked_source, span_micros

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def uptime_notebook(
    source: Mapping[str, str], silence: str, kind: EventKind, folder: str
) -> Notebook:
    """Check all that can be known to be wrong, and open the job's notebook."""
    span_micros(silence, "--silence")
    request = request_of(
        "uptime", source, by=kind.by, silence=silence, message_time=str(kind.message_time)
    )
    notebook = Notebook(folder, request)
    checked_source("uptime", source, OURS, follows=True)
    return notebook


class UptimeStep:
    """One batch. The state has a row for each device: key, t_us of its last message, first_us,
    messages, offline_us, and whether its open silence was told."""

    def __init__(self, silence: str, kind: EventKind) -> None:
        self._silence = span_micros(silence, "--silence")
        self._kind = kind

    def __call__(self, batch: Batch) -> Outcome:
        """Find devices that are silent now, and silences that ended."""
        from pyspark.sql import functions as f

        events = batch.hold(marked(event_columns(batch.rows, self._kind), batch.state))
        seen = events.agg(
            f.count("*").alias("read"),
            f.count_if(f.col("key").isNull()).alias("unknown"),
            f.count_if("late").alias("late"),
            f.max(f.when(f.col("key").isNotNull(), f.col("t_us"))).alias("newest"),
        ).collect()[0]
        until = max(int(batch.memo.get("until_us", 0)), seen["newest"] or 0)
        events = events.where("key IS NOT NULL AND NOT late").drop("late")
        ended = batch.hold(self._ended(events, batch.state))
        state = batch.hold(self._devices(events, ended, batch.state, until))
        fresh = state.where("told AND NOT told_before").select(
            "key", f.col("t_us").alias("from_us"), f.lit(until).alias("until_us"),
            f.lit(True).alias("open"),
        )  # fmt: skip
        found = ended.select("*", f.lit(False).alias("open")).union(fresh).collect()
        findings = sorted((row.asDict() for row in found), key=itemgetter("from_us", "key"))
        away = [each["until_us"] - each["from_us"] for each in findings if not each["open"]]
        kept = batch.keep(state.drop("told_before"))
        memo = {"keys": count_rows(kept), "offline_now": add_up(kept, "told")}
        counts = {"intervals": len(away), "offline_us": sum(away)}
        counts |= {"unknown": seen["unknown"], "late": seen["late"]}
        return Outcome(seen["read"], {**memo, "until_us": until}, counts, tuple(findings))

    def _ended(self, events: "DataFrame", state: "DataFrame | None") -> "DataFrame":
        """Silences that a message of this batch ends: key, from_us, until_us."""
        from pyspark.sql import functions as f

        heard = events.select("key", "t_us", "stream", "sequence")
        if state is not None:
            before = state.select(
                "key", "t_us", f.lit("").alias("stream"), f.lit(0).cast("long").alias("sequence")
            )
            heard = heard.union(before)
        return silences(heard, self._silence)

    def _devices(
        self, events: "DataFrame", ended: "DataFrame", state: "DataFrame | None", until: int
    ) -> "DataFrame":
        """The new state, and `told_before`."""
        from pyspark.sql import functions as f

        away = ended.groupBy("key").agg(f.sum(f.col("until_us") - f.col("from_us")).alias("away"))
        heard = events.groupBy("key").agg(
            f.max("t_us").alias("t_us"), f.min("t_us").alias("first_us"),
            f.count("*").alias("messages"),
        )  # fmt: skip
        rows = heard.join(away, "key", "left").select(
            *heard.columns, f.coalesce("away", f.lit(0)).alias("offline_us"),
            f.lit(False).alias("told"),
        )  # fmt: skip
        if state is not None:
            rows = rows.unionByName(state.select(*rows.columns))
        devices = rows.groupBy("key").agg(
            f.max("t_us").alias("t_us"),
            f.min("first_us").alias("first_us"),
            f.sum("messages").alias("messages"),
            f.sum("offline_us").alias("offline_us"),
            # A device that was heard again has not been told of as silent.
            f.max_by("told", f.struct("t_us", ~f.col("told"))).alias("told_before"),
        )
        silent = (f.lit(until) - f.col("t_us")) > self._silence
        return devices.withColumn("told", silent)
