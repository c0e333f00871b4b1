"""Strange values as they come: the detectors of all keys are the state."""

import json
from collections.abc import Mapping
from operator import itemgetter
from typing import TYPE_CHECKING

from headwater.spark.jobs.anomaly import FINDING, Rows, Strange
from headwater.spark.jobs.detector import Detector
from headwater.spark.jobs.events import OURS, event_columns
from headwater.spark.jobs.following.follower import Batch, Outcome
from headwater.spark.jobs.following.notebook import Notebook, request_of
from headwater.spark.jobs.following.written import count_rows
from headwater.spark.jobs.job import checked_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STATE = "key string, detector string"


def anomaly_notebook(source: Mapping[str, str], strange: Strange, folder: str) -> Notebook:
    """Check all that can be known to be wrong, and open the job's notebook."""
    kind = strange.kind
    request = request_of(
        "anomaly", source, by=kind.by, value=kind.value, message_time=str(kind.message_time),
        memory=str(strange.memory), quiet=str(strange.quiet),
    )  # fmt: skip
    notebook = Notebook(folder, request)
    checked_source("anomaly", source, OURS, follows=True)
    return notebook


class AnomalyStep:
    """One batch. Values of a key are judged in the order in which their stream has them."""

    def __init__(self, strange: Strange) -> None:
        self._strange = strange

    def __call__(self, batch: Batch) -> Outcome:
        """Find strange values, and keep the detectors."""
        from pyspark.sql import functions as f

        events = batch.hold(event_columns(batch.rows, self._strange.kind))
        usable = f.col("key").isNotNull() & f.col("value").isNotNull()
        judged = batch.hold(self._judged(events.where(usable), batch.state))
        found = judged.where("detector IS NULL").drop("detector").collect()
        findings = sorted(
            (row.asDict() for row in found), key=itemgetter("t_us", "key", "sequence")
        )
        kept = batch.keep(judged.where("detector IS NOT NULL").select("key", "detector"))
        read, valid = events.agg(f.count("*"), f.count_if(usable)).collect()[0]
        counts = {"judged": valid, "unknown": read - valid, "anomalies": len(findings)}
        return Outcome(read, {"keys": count_rows(kept)}, counts, tuple(findings))

    def _judged(self, known: "DataFrame", state: "DataFrame | None") -> "DataFrame":
        """Findings, and for each key a row with the detector's new state."""
        strange = self._strange

        def judge(key: tuple[str], rows: "Rows", before: "Rows") -> "Rows":
            import pandas  # type: ignore[import-untyped]

            detector = Detector(strange.memory, strange.quiet)
            if len(before):
                detector.restore(json.loads(before["detector"].iloc[0]))
            found = strange.judge(detector, rows.sort_values(["stream", "sequence"]))
            kept = pandas.DataFrame({"key": [key[0]], "detector": [json.dumps(detector.state())]})
            # A frame of nothing has columns without types.
            parts = [part for part in (found, kept) if len(part)]
            return pandas.concat(parts).reindex(columns=[*FINDINGS, "detector"])

        if state is None:
            state = known.sparkSession.createDataFrame([], _STATE)
        pairs = known.groupBy("key").cogroup(state.groupBy("key"))
        return pairs.applyInPandas(judge, f"{FINDING}, detector string")


FINDINGS = tuple(part.split()[0] for part in FINDING.split(", "))
