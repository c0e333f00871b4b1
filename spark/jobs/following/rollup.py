"""A rollup that goes on: each window is written once, when no message for it is expected any more.

The *watermark* says up to when: it is the newest time of a message, less the lateness that is
allowed. A message whose window ended before the watermark is late. Late messages are counted, and
their rows written apart (`_late`), in the same columns.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwater.spark.errors import SourceError
from headwater.spark.jobs.following.follower import Batch, Outcome
from headwater.spark.jobs.following.notebook import Notebook, request_of
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
        rows = telemetry(batch.rows)
        newest, valid, read = self._look(rows)
        watermark = max(before, (newest or 0) - self._lateness)
        ends = f.col("window_us") + self._micros
        parts = partial(rows, self._micros).persist()
        fresh = parts.where(ends > before)
        if batch.state is not None:
            fresh = fresh.unionByName(batch.state)
        merged = merge(fresh).persist()
        late = self._write(batch, "_late/", parts.where(ends <= before))
        written = self._write(batch, "", merged.where(ends <= watermark))
        state = merged.where(ends > watermark)
        waiting = _sums(state)
        held = int(batch.memo.get("waiting_rows", 0))
        if held + valid != late["rows"] + written["rows"] + waiting["rows"]:
            raise SourceError(
                f"batch {batch.number}: {held} + {valid} messages went into the windows, and "
                f"{late['rows']} + {written['rows']} + {waiting['rows']} came out"
            )
        memo = {
            "watermark_us": watermark,
            "waiting_rows": waiting["rows"],
            "waiting_groups": waiting["groups"],
        }
        counts = {**written, "late": late["rows"], "invalid": read - valid}
        return Outcome(state, memo, counts, held=(parts, merged))

    def _look(self, rows: "DataFrame") -> tuple[int | None, int, int]:
        """The newest time, messages that are telemetry, and all messages.

        A message from the future must not make those of others late: no message is newer than
        its arrival.
        """
        from pyspark.sql import functions as f

        known = f.col("device").isNotNull()
        moment = f.least("t_us", "arrived_us")
        found = rows.agg(
            f.max(f.when(known, moment)), f.count_if(known), f.count("*")
        ).collect()[0]
        return found[0], found[1], found[2]

    def _write(self, batch: Batch, below: str, parts: "DataFrame") -> dict[str, int]:
        """Write finished rows, and count them as they are in the files."""
        target = batch.folder / f"{below}batch={batch.number}"
        finished(parts, self._micros).write.mode("overwrite").parquet(str(target))
        return _sums(parts.sparkSession.read.parquet(str(target)))


def _sums(frame: "DataFrame") -> dict[str, Any]:
    from pyspark.sql import functions as f

    rows = f.coalesce(f.sum("count"), f.lit(0)).alias("rows")
    return frame.agg(rows, f.count("*").alias("groups")).collect()[0].asDict()
