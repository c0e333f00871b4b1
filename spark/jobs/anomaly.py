"""Anomalies: values of a device that are unlike its own values before.

One detector for each key (`detector.py`). In a batch the rows of a key are judged in the order of
their times; a job that follows (`following/anomaly.py`) judges them as they come.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headwater.spark.errors import OptionError
from headwater.spark.jobs.detector import MEMORY, QUIET, THRESHOLD, Detector
from headwater.spark.jobs.events import OURS, EventKind, read_events
from headwater.spark.jobs.job import (
    check_output,
    checked_source,
    job_session,
    kept_findings,
    missing_rows,
    planned_rows,
)
from headwater.spark.jobs.watch import JobProgress, watched
from headwater.spark.read.account import ReadAccount

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    planned = planned_rows(source, progress)
    with (
        job_session("anomaly", spark) as session,
        watched(session, "read", progress, planned) as enter,
    ):
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
