"""Gaps: what is missing, by a stated expectation.

The expectation is one of three:
- the stream's own sequences follow each other (missing ones were deleted or replaced);
- a counter in the messages of each key goes up by one from message to message;
- each key is heard at least every so many seconds.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headwater.spark.errors import OptionError
from headwater.spark.jobs.events import OURS, EventKind, read_events, silences
from headwater.spark.jobs.job import (
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

#: Sequences in which one task looks for gaps by itself.
_BUCKET = 1 << 16

_LONG_MAX = (1 << 63) - 1


@dataclass(frozen=True)
class GapsResult:
    """What a search for gaps found.

    `gaps` intervals lack `missing` messages. `keys` are the streams or keys that were seen,
    `restarts` the counters that went down, `repeats` the counters that stood still. `unknown`
    messages had no key, or no counter. `read` of `planned` messages came; `expired` and `lost`
    ones did not. `findings` are the first 1000 gaps: of sequences and counters {"key",
    "first", "last", "missing"}, of times {"key", "from_us", "until_us", "missing"} in
    microseconds since 1970.
    """

    gaps: int
    missing: int
    keys: int
    restarts: int
    repeats: int
    unknown: int
    read: int
    planned: int
    expired: int
    lost: int
    findings: list[dict[str, Any]]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Expectation:
    """`every` is a span such as 10s, or ""; else `kind.counter` counts, or the sequences."""

    kind: EventKind = EventKind()
    every: str = ""

    @property
    def micros(self) -> int:
        """`every` in microseconds. Raises OptionError."""
        return span_micros(self.every, "--every")


def check_gaps(
    source: Mapping[str, str], expected: Expectation, out: str | None, overwrite: bool
) -> None:
    """Raise what can be known to be wrong before anything is started."""
    check_expectation(source, expected)
    if out is not None:
        check_output(out, overwrite)
    checked_source("gaps", source, OURS)


def check_expectation(source: Mapping[str, str], expected: Expectation) -> None:
    """Raises OptionError for an expectation that makes no sense of this source."""
    if expected.every:
        _ = expected.micros
        if expected.kind.counter:
            raise OptionError("--every and --counter are two expectations: state one of them")
    names = {name.lower() for name in source}
    if not expected.every and not expected.kind.counter and "subjects" in names:
        raise OptionError(
            "sequences have gaps where subjects are left out: state --every or --counter, or "
            "leave --subject away"
        )


def run_gaps(
    source: Mapping[str, str],
    expected: Expectation,
    out: str | None = None,
    overwrite: bool = False,
    progress: Callable[[JobProgress], None] | None = None,
    spark: "SparkSession | None" = None,
) -> GapsResult:
    """Read once, and find what is missing.

    Gaps are looked for between messages that are there, not before the first and behind the
    last. `out` takes all gaps as Parquet.

    Raises OptionError, FileExistsError, the source's errors, and Spark's with those in them.
    """
    started = time.monotonic()
    check_gaps(source, expected, out, overwrite)
    planned = planned_rows(source, progress)
    with (
        job_session("gaps", spark) as session,
        watched(session, "read", progress, planned) as enter,
    ):
        account = ReadAccount(session)
        events = read_events(session, source, expected.kind, account).persist()
        try:
            counts = count_events(events, expected)
            enter("search")
            steps = find_steps(events, expected).persist()
            sums = sum_steps(steps)
            order = ["key", "from_us" if expected.every else "first"]
            gaps = steps.where("missing > 0").drop("step")
            findings = kept_findings(gaps, order, out, overwrite)
            steps.unpersist()
        finally:
            events.unpersist()
    expired, lost = missing_rows(account.total, counts["read"])
    return GapsResult(
        **sums,
        **counts,
        planned=account.total.planned,
        expired=expired,
        lost=lost,
        findings=findings,
        seconds=round(time.monotonic() - started, 3),
    )


def count_events(events: "DataFrame", expected: Expectation) -> dict[str, int]:
    from pyspark.sql import functions as f

    of_sequences = not expected.every and not expected.kind.counter
    unknown = "false" if of_sequences else "key IS NULL"
    if expected.kind.counter:
        unknown += " OR counter IS NULL"
    return events.agg(
        f.count("*").alias("read"),
        f.count_distinct("stream" if of_sequences else "key").alias("keys"),
        f.count_if(f.expr(unknown)).alias("unknown"),
    ).collect()[0].asDict()


def sum_steps(steps: "DataFrame") -> dict[str, int]:
    from pyspark.sql import functions as f

    # Two gaps of a counter may lack more than 64 bits hold.
    missing = f.sum(f.col("missing").cast("decimal(20,0)"))
    row = steps.agg(
        f.count_if(f.col("missing") > 0).alias("gaps"),
        f.coalesce(missing, f.lit(0)).alias("missing"),
        f.count_if(f.col("step") < 0).alias("restarts"),
        f.count_if(f.col("step") == 0).alias("repeats"),
    ).collect()[0]
    return {name: int(count) for name, count in row.asDict().items()}


def find_steps(events: "DataFrame", expected: Expectation) -> "DataFrame":
    """Steps that are none of one: key, two bounds, missing, step."""
    from pyspark.sql import functions as f

    if expected.every:
        micros = expected.micros
        silent = silences(events.where("key IS NOT NULL"), micros)
        # A message that comes a little late has not made another one missing.
        missing = f.ceil((f.col("until_us") - f.col("from_us")) / micros) - 1
        return silent.select(
            "*", missing.cast("long").alias("missing"), f.lit(1).alias("step")
        )
    pairs = counter_pairs(events) if expected.kind.counter else sequence_pairs(events)
    # A device may send any number. What is farther apart than 64 bits tell counts as so far.
    farthest = f.when(f.col("after") > f.col("before"), _LONG_MAX).otherwise(-_LONG_MAX)
    step = f.coalesce(f.try_subtract("after", "before"), farthest)
    return pairs.where(step != 1).select(
        "key",
        f.try_add("before", f.lit(1)).alias("first"),
        f.try_subtract("after", f.lit(1)).alias("last"),
        f.when(step > 1, step - 1).otherwise(0).cast("long").alias("missing"),
        step.alias("step"),
    )


def counter_pairs(events: "DataFrame") -> "DataFrame":
    """Counters of a key that follow each other in its stream: key, before, after."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    known = events.where("key IS NOT NULL AND counter IS NOT NULL")
    before = f.lag("counter").over(Window.partitionBy("stream", "key").orderBy("sequence"))
    pairs = known.select("key", before.alias("before"), f.col("counter").alias("after"))
    return pairs.where("before IS NOT NULL")


def sequence_pairs(events: "DataFrame") -> "DataFrame":
    """Sequences that follow each other in their stream: in buckets, and from one to the next."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    rows = events.select(
        f.col("stream").alias("key"), "sequence", f.expr(f"sequence div {_BUCKET}").alias("bucket")
    )
    inner = Window.partitionBy("key", "bucket").orderBy("sequence")
    within = rows.select(
        "key", f.lag("sequence").over(inner).alias("before"), f.col("sequence").alias("after")
    )
    ends = rows.groupBy("key", "bucket").agg(
        f.min("sequence").alias("low"), f.max("sequence").alias("high")
    )
    outer = Window.partitionBy("key").orderBy("bucket")
    between = ends.select(
        "key", f.lag("high").over(outer).alias("before"), f.col("low").alias("after")
    )
    return within.union(between).where("before IS NOT NULL")
