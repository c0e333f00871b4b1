"""A rollup that goes on: each window is written once, when no message for it is expected any more.

The *watermark* says up to when: it is the newest time of a message, less the lateness that is
allowed. A message whose window ended before the watermark is late. Late messages are counted, and
their rows written apart (`_late`), in the same columns.
"""

import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwater.spark.errors import SourceError
from headwater.spark.jobs.following.follower import Batch, Outcome
from headwater.spark.jobs.following.notebook import Notebook, request_of
from headwater.spark.jobs.following.written import add_up, count_rows
from headwater.spark.jobs.job import checked_source, span_micros
from headwater.spark.jobs.rollup import OURS
from headwater.spark.jobs.windows import finished, merge, partial, telemetry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LATENESS = "10m"


def rollup_notebook(
    source: Mapping[str, str], folder: str, window: str, lateness: str
) -> Notebook:
    """Check all that can be known to be wrong, and open the job's notebook."""
    span_micros(window, "--window")
    span_micros(lateness, "--lateness")
    notebook = Notebook(folder, request_of("rollup", source, window=window))
    checked_source("rollup", source, OURS, follows=True)
    return notebook


class RollupStep:
    """One batch: into the open windows, and out those that are closed now."""

    def __init__(self, window: str, lateness: str) -> None:
        self._micros = span_micros(window, "--window")
        self._lateness = span_micros(lateness, "--lateness")

    def __call__(self, batch: Batch) -> Outcome:
        """Write `batch=N` and perhaps `_late/batch=N` into the folder."""
        from pyspark.sql import functions as f

        before = int(batch.memo.get("watermark_us", 0))
        ends = f.col("window_us") + self._micros
        parts = batch.hold(partial(telemetry(batch.rows), self._micros))
        seen = self._look(parts, before)
        watermark = max(before, (seen["heard_us"] or 0) - self._lateness)
        known = parts.where("device IS NOT NULL").drop("heard_us")
        fresh = known.where(ends > before)
        if batch.state is not None:
            fresh = fresh.unionByName(batch.state)
        merged = batch.hold(merge(fresh))
        late = self._write(batch, "_late/", known.where(ends <= before) if seen["late"] else None)
        written = self._write(batch, "", merged.where(ends <= watermark))
        state = batch.keep(merged.where(ends > watermark))
        waiting = {"rows": add_up(state, "count"), "groups": count_rows(state)}
        held = int(batch.memo.get("waiting_rows", 0))
        if held + seen["valid"] != late["rows"] + written["rows"] + waiting["rows"]:
            raise SourceError(
                f"batch {batch.number}: {held} + {seen['valid']} messages went into the windows, "
                f"and {late['rows']} + {written['rows']} + {waiting['rows']} came out"
            )
        memo = {
            "watermark_us": watermark,
            "waiting_rows": waiting["rows"],
            "waiting_groups": waiting["groups"],
        }
        counts = {**written, "late": late["rows"], "invalid": seen["read"] - seen["valid"]}
        return Outcome(seen["read"], memo, counts)

    def _look(self, parts: "DataFrame", before: int) -> dict[str, Any]:
        """All messages, those that are telemetry, the late ones, and the newest time.

        A message from the future must not make those of others late: no message is newer than
        its arrival.
        """
        from pyspark.sql import functions as f

        known = f.col("device").isNotNull()
        late = known & (f.col("window_us") + self._micros <= before)
        none = f.lit(0)
        found = parts.agg(
            f.coalesce(f.sum("count"), none).alias("read"),
            f.coalesce(f.sum(f.when(known, f.col("count"))), none).alias("valid"),
            f.coalesce(f.sum(f.when(late, f.col("count"))), none).alias("late"),
            f.max(f.when(known, f.col("heard_us"))).alias("heard_us"),
        )
        return found.collect()[0].asDict()

    def _write(self, batch: Batch, below: str, parts: "DataFrame | None") -> dict[str, int]:
        """Write finished rows, and count them as they are in the files. Without rows, what an
        attempt that was cut off wrote goes away."""
        target = batch.folder / f"{below}batch={batch.number}"
        if parts is None:
            shutil.rmtree(target, ignore_errors=True)
            return {"rows": 0, "groups": 0}
        finished(parts, self._micros).write.mode("overwrite").parquet(str(target))
        return {"rows": add_up(target, "count"), "groups": count_rows(target)}
