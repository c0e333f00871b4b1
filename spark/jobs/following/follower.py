"""A streaming query whose job is a function from a batch and a state to a new state.

The job's folder has the `Notebook`, Spark's checkpoint in `_query`, and the state after the last
batch in `_state/N`, as Parquet. Names with an underscore are left out when Spark reads the folder.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headwater.spark.errors import OptionError, SourceError
from headwater.spark.jobs.following.notebook import Notebook
from headwater.spark.jobs.following.written import read_back
from headwater.spark.jobs.job import missing_rows
from headwater.spark.read.account import ReadAccount

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: How long a query waits between two looks for messages.
TRIGGER = "1 second"
#: Most messages of a batch, unless the source says another number: what a batch holds is bounded.
BATCH_ROWS = "2000000"


@dataclass(frozen=True)
class Batch:
    """The messages of one batch, and what was kept after the last one."""

    number: int
    rows: "DataFrame"
    state: "DataFrame | None"
    memo: Mapping[str, Any]
    folder: Path
    _held: "list[DataFrame]" = field(default_factory=list)

    def hold(self, frame: "DataFrame") -> "DataFrame":
        """Persist what is used more than once, until the batch ends."""
        self._held.append(frame.persist())
        return frame

    def release(self) -> None:
        """Give up what is held."""
        for frame in self._held:
            frame.unpersist()

    @property
    def kept(self) -> Path:
        """Where the state after this batch is."""
        return _state(self.folder, self.number)

    def keep(self, state: "DataFrame") -> Path:
        """Write the state for the next batch; each step does so once. Returns its folder."""
        state.write.mode("overwrite").parquet(str(self.kept))
        return self.kept


@dataclass(frozen=True)
class Outcome:
    """What a batch leaves besides its state: how many messages were `read`, `memo` of a few
    numbers, `counts` for the totals, and findings to tell."""

    read: int
    memo: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[dict[str, Any], ...] = ()


class Step(Protocol):
    """A job, for one batch."""

    def __call__(self, batch: Batch) -> Outcome:
        """Do it. It may be called again for a batch that was cut off."""
        ...


class Follower:
    """Runs a job over the batches of a streaming query; owns its folder while it runs."""

    def __init__(
        self,
        notebook: Notebook,
        step: Step,
        found: Callable[[dict[str, Any]], None],
        spark: "SparkSession",
    ) -> None:
        self.notebook = notebook
        self._step = step
        self._found = found
        self._spark = spark
        self._account = ReadAccount(spark)

    def start(
        self,
        source: Mapping[str, str],
        *,
        until_now: bool = False,
    ) -> "StreamingQuery":
        """Start the query over the messages of `source`; with `until_now` it ends with what is
        there."""
        self.notebook.begin()
        self._check_query()
        options = {**source, **self._account.options}
        if not any(name.lower() == "maxmsgspertrigger" for name in source):
            options["maxMsgsPerTrigger"] = BATCH_ROWS
        frame = self._spark.readStream.format("headwater").options(**options).load()
        writer = frame.writeStream.foreachBatch(self._batch)
        writer = writer.option("checkpointLocation", str(self.notebook.folder / "_query"))
        if until_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=TRIGGER).start()

    def _check_query(self) -> None:
        """Batches of another checkpoint have other numbers. Raises OptionError."""
        if self.notebook.batch >= 0 and self._query_id() != self.notebook.query:
            raise OptionError(
                f"{self.notebook.folder} has lost the checkpoint of its query (_query): bring it "
                "back, or begin in another folder"
            )

    def _query_id(self) -> str:
        try:
            text = (self.notebook.folder / "_query" / "metadata").read_text()
            return str(json.loads(text)["id"])
        except (OSError, ValueError, KeyError):
            return ""

    def _batch(self, frame: "DataFrame", number: int) -> None:
        book = self.notebook
        if number <= book.batch:
            return
        if number != book.batch + 1:
            raise SourceError(f"{book.folder}: batch {number} does not follow {book.batch}")
        self._account.forget()
        state = None
        if book.batch >= 0:
            state = read_back(frame.sparkSession, _state(book.folder, book.batch))
        batch = Batch(number, frame, state, book.memo, book.folder)
        try:
            outcome = self._step(batch)
        finally:
            batch.release()
        total = self._account.total
        expired, lost = missing_rows(total, outcome.read)
        for finding in outcome.findings:
            self._found(finding)
        counts = {"planned": total.planned, "read": outcome.read, "expired": expired, "lost": lost}
        book.query = self._query_id()
        book.done(number, outcome.memo, {**counts, **outcome.counts})
        for old in batch.kept.parent.iterdir():
            if old.name != str(number):
                shutil.rmtree(old)


def _state(folder: Path, number: int) -> Path:
    """Where the state after a batch is."""
    return folder / "_state" / str(number)
