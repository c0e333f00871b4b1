"""Gaps as they appear: between the messages of a batch, and from the last message before it."""

from collections.abc import Mapping
from operator import itemgetter
from typing import TYPE_CHECKING

from headwater.spark.jobs.events import OURS, event_columns
from headwater.spark.jobs.following.follower import Batch, Outcome
from headwater.spark.jobs.following.notebook import Notebook, request_of
from headwater.spark.jobs.following.written import count_rows
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
        events = marked(event_columns(batch.rows, self._expected.kind), self._known(batch))
        events = batch.hold(events)
        counts = count_events(events, self._expected)
        read = counts.pop("read")
        # Keys are those of the state.
        del counts["keys"]
        fresh = events.where("NOT late").drop("late")
        whole = fresh if batch.state is None else fresh.unionByName(batch.state)
        steps = batch.hold(find_steps(whole, self._expected))
        counts |= sum_steps(steps)
        gaps = [row.asDict() for row in steps.where("missing > 0").drop("step").collect()]
        gaps.sort(key=itemgetter("key", "from_us" if self._expected.every else "first"))
        keys = count_rows(batch.keep(self._last(whole)))
        return Outcome(read, {"keys": keys}, counts, tuple(gaps))

    def _known(self, batch: Batch) -> "DataFrame | None":
        """The state, where what is older than it comes late: sequences and counters have an order
        of their own."""
        return batch.state if self._expected.every else None

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


def marked(events: "DataFrame", state: "DataFrame | None") -> "DataFrame":
    """The events, and whether each is `late`: older than its key's last one in the state."""
    from pyspark.sql import functions as f

    if state is None:
        return events.withColumn("late", f.lit(False))
    last = state.select("key", f.col("t_us").alias("before_us"))
    joined = events.join(last, "key", "left")
    late = f.coalesce(f.col("t_us") < f.col("before_us"), f.lit(False))
    return joined.select(*events.columns, late.alias("late"))
