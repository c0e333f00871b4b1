"""Anomalies: values of a device that are unlike its own values before.

One detector for each key (`detector.py`). In a batch the rows of a key are judged in the order of
their times; in a streaming query in the order in which they come, and the detectors are the
query's state.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headwater.spark.errors import OptionError
from headwater.spark.jobs.detector import MEMORY, QUIET, THRESHOLD, Detector
from headwater.spark.jobs.events import OURS, EventKind, event_columns, event_options, read_events
from headwater.spark.jobs.job import (
    check_output,
    checked_source,
    job_session,
    kept_findings,
    missing_rows,
)
from headwater.spark.jobs.watch import JobProgress, watched
from headwater.spark.read.account import ReadAccount

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: A pandas.DataFrame.
Rows = Any

FINDING = "key string, t_us long, sequence long, value double, strangeness double"


@dataclass(frozen=True)
class AnomalyResult:
    """What was found: `anomalies` among `judged` values of `keys`. `unknown` messages had no key
    or no number. `read` of `planned` messages came; `expired` and `lost` ones did not. `findings`
    are the first 1000: {"key", "t_us" (microseconds since 1970), "sequence", "value",
    "strangeness" (deviations)}."""

    anomalies: int
    judged: int
    keys: int
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
class Strange:
    """Which numbers are judged, and what counts: `strangeness` of `threshold` deviations or more.
    `memory` and `quiet` are in values of one key; see `Detector`."""

    kind: EventKind
    threshold: float = THRESHOLD
    memory: int = MEMORY
    quiet: int = QUIET

    def __post_init__(self) -> None:
        """Raise OptionError for what makes no sense."""
        if not self.kind.value:
            raise OptionError("state the JSON field of a number with --value")
        if self.threshold <= 0 or self.memory < 1 or self.quiet < 1:
            raise OptionError("threshold, memory and quiet must be above 0")

    def judge(self, detector: Detector, rows: "Rows") -> "Rows":
        """The strange ones of some rows of one key, in their order."""
        found = [detector.feed(float(value)) for value in rows["value"]]
        kept = rows.assign(strangeness=found)
        kept = kept[kept["strangeness"] >= self.threshold]
        return kept[["key", "t_us", "sequence", "value", "strangeness"]]


def check_anomaly(source: Mapping[str, str], out: str | None, overwrite: bool) -> None:
    """Raise what can be known to be wrong before anything is started."""
    if out is not None:
        check_output(out, overwrite)
    checked_source("anomaly", source, OURS)


def run_anomaly(
    source: Mapping[str, str],
    strange: Strange,
    out: str | None = None,
    overwrite: bool = False,
    progress: Callable[[JobProgress], None] | None = None,
    spark: "SparkSession | None" = None,
) -> AnomalyResult:
    """Read once, and find strange values. The rows of one key are in memory together.

    `out` takes all findings as Parquet. Raises OptionError, FileExistsError, the source's errors,
    and Spark's with those in them.
    """
    started = time.monotonic()
    check_anomaly(source, out, overwrite)
    with job_session("anomaly", spark) as session, watched(session, "read", progress) as enter:
        account = ReadAccount(session)
        events = read_events(session, source, strange.kind, account).persist()
        try:
            counts = _counts(events)
            enter("judge")
            found = _judged(events, strange).persist()
            anomalies = found.count()
            findings = kept_findings(found, ["t_us", "key", "sequence"], out, overwrite)
            found.unpersist()
        finally:
            events.unpersist()
    expired, lost = missing_rows(account.total, counts["read"])
    return AnomalyResult(
        anomalies=anomalies,
        judged=counts["read"] - counts["unknown"],
        **counts,
        planned=account.total.planned,
        expired=expired,
        lost=lost,
        findings=findings,
        seconds=round(time.monotonic() - started, 3),
    )


def _counts(events: "DataFrame") -> dict[str, int]:
    from pyspark.sql import functions as f

    return events.agg(
        f.count("*").alias("read"),
        f.count_distinct("key").alias("keys"),
        f.count_if(f.expr("key IS NULL OR value IS NULL")).alias("unknown"),
    ).collect()[0].asDict()


def _judged(events: "DataFrame", strange: Strange) -> "DataFrame":
    def judge(rows: "Rows") -> "Rows":
        ordered = rows.sort_values(["t_us", "stream", "sequence"])
        return strange.judge(Detector(strange.memory, strange.quiet), ordered)

    known = events.where("key IS NOT NULL AND value IS NOT NULL")
    return known.groupBy("key").applyInPandas(judge, FINDING)


def follow_anomaly(
    source: Mapping[str, str],
    strange: Strange,
    found: Callable[[dict[str, Any]], None],
    checkpoint: str,
    spark: "SparkSession",
    *,
    until_now: bool = False,
) -> "StreamingQuery":
    """Judge messages as they come, in a streaming query; returns it, at work.

    `found` is called on the driver with each strange value: once, or again when the query ended
    between a finding and its checkpoint. `until_now` ends it with what is there.
    Raises OptionError and the source's errors.
    """
    from pyspark.sql.streaming.state import GroupStateTimeout

    check_anomaly(source, None, False)

    def judge(
        key: tuple[str], parts: "Iterator[Rows]", state: Any
    ) -> "Iterator[Rows]":
        import pandas  # type: ignore[import-untyped]

        detector = Detector(strange.memory, strange.quiet)
        if state.exists:
            detector.restore(json.loads(state.get[0]))
        rows = pandas.concat(list(parts)).sort_values(["stream", "sequence"])
        yield strange.judge(detector, rows)
        state.update((json.dumps(detector.state()),))

    options = {**source, **event_options(strange.kind)}
    frame = spark.readStream.format("headwater").options(**options).load()
    events = event_columns(frame, strange.kind)
    known = events.where("key IS NOT NULL AND value IS NOT NULL")
    judged = known.groupBy("key").applyInPandasWithState(
        judge, FINDING, "detector string", "append", GroupStateTimeout.NoTimeout
    )

    def report(rows: "DataFrame", _: int) -> None:
        for row in rows.orderBy("t_us", "key", "sequence").collect():
            found(row.asDict())

    writer = judged.writeStream.foreachBatch(report).option("checkpointLocation", checkpoint)
    trigger = {"availableNow": True} if until_now else {"processingTime": "1 second"}
    return writer.trigger(**trigger).start()
