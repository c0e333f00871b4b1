"""Gaps as they appear: between the messages of a batch, and from the last message before it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headwater.spark.jobs.events import OURS, event_columns
from headwater.spark.jobs.following.follower import Batch, Outcome
from headwater.spark.jobs.following.notebook import Notebook, request_of
from headwater.spark.jobs.gaps import (
    Expectation,
    check_expectation,
    count_events,
    find_steps,
    sum_steps,
)
from headwater.spark.jobs.job import checked_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def gaps_notebook(source: Mapping[str, str], expected: Expectation, folder: str) -> Notebook:
    """Check all that can be known to be wrong, and open the job's notebook."""
    check_expectation(source, expected)
    kind = expected.kind
    request = request_of(
        "gaps", source, by=kind.by, every=expected.every, counter=kind.counter,
        message_time=str(kind.message_time),
    )  # fmt: skip
    notebook = Notebook(folder, request)
    checked_source("gaps", source, OURS, follows=True)
    return notebook


class GapsStep:
    """One batch. The state is the last message of each key, or of each stream."""

    def __init__(self, expected: Expectation) -> None:
        self._expected = expected

    def __call__(self, batch: Batch) -> Outcome:
        """Find gaps, those from the last batch to this one too."""
        events = event_columns(batch.rows, self._expected.kind)
        counts = count_events(events, self._expected)
        # Keys are those of the state, and reading is the follower's.
        del counts["keys"], counts["read"]
        late = 0
        if self._expected.every:
            events, late = in_time(events, batch.state)
        whole = events if batch.state is None else events.unionByName(batch.state)
        steps = find_steps(whole, self._expected).persist()
        counts |= sum_steps(steps) | {"late": late}
        order = ["key", "from_us" if self._expected.every else "first"]
        gaps = steps.where("missing > 0").drop("step").orderBy(*order)
        findings = tuple(row.asDict() for row in gaps.toLocalIterator())
        state = self._last(whole)
        return Outcome(state, {"keys": state.count()}, counts, findings, (steps,))

    def _last(self, events: "DataFrame") -> "DataFrame":
        """The last message of each key: by time, or in each stream by sequence."""
        from pyspark.sql import functions as f

        expected = self._expected
        if expected.every:
            groups, order = ["key"], f.struct("t_us", "sequence")
        elif expected.kind.counter:
            groups, order = ["stream", "key"], f.struct("sequence")
            events = events.where("counter IS NOT NULL")
        else:
            groups, order = ["stream"], f.struct("sequence")
        if groups != ["stream"]:
            events = events.where("key IS NOT NULL")
        rest = [name for name in events.columns if name not in groups]
        last = events.groupBy(*groups).agg(f.max_by(f.struct(*rest), order).alias("last"))
        return last.select(*groups, "last.*").select(*events.columns)


def in_time(events: "DataFrame", state: "DataFrame | None") -> "tuple[DataFrame, int]":
    """The events that are not older than their key's last one before; and how many are."""
    if state is None:
        return events, 0
    from pyspark.sql import functions as f

    last = state.select("key", f.col("t_us").alias("before_us"))
    joined = events.join(last, "key", "left")
    old = f.coalesce(f.col("t_us") < f.col("before_us"), f.lit(False))
    kept = joined.where(~old).select(*events.columns)
    return kept, joined.where(old).count()
