"""How far a Spark job is, for a progress bar: rows read of rows planned, or tasks done."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext, StatusTracker
    from pyspark.sql import SparkSession

    from headwater.spark.read.account import ReadAccount

#: Seconds between two looks at the scheduler.
INTERVAL = 0.25


@dataclass(frozen=True)
class JobProgress:
    """`done` of `total` in `phase`, in `unit`: rows or tasks. A total of tasks grows while stages
    start."""

    phase: str
    done: int
    total: int
    unit: str = "tasks"


class Watch:
    """Polls the scheduler in its own thread; owns that thread."""

    def __init__(
        self,
        spark: "SparkSession",
        report: Callable[[JobProgress], None],
        planned: int = 0,
        account: "ReadAccount | None" = None,
    ) -> None:
        """`planned` rows are read in the first phase; 0 when that is not known. The `account`
        counts them where readers do not give them to Spark."""
        self._planned = planned
        self._account = account
        self._rows: dict[int, int] = {}
        self._context: SparkContext = spark.sparkContext
        self._report = report
        self._phase = ""
        self._stages: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spark-progress", daemon=True)

    def start(self, phase: str) -> None:
        """Start to poll."""
        self._phase = phase
        self._thread.start()

    def enter(self, phase: str) -> None:
        """The phase is done, and a new one counts tasks from zero again."""
        self.finish()
        with self._lock:
            self._stages = {}
            self._planned = 0
            self._phase = phase

    def finish(self) -> None:
        """Report all tasks of the phase as done."""
        with self._lock:
            total = sum(part[1] for part in self._stages.values())
            if self._planned:
                self._report(JobProgress(self._phase, self._planned, self._planned, "rows"))
            elif total:
                self._report(JobProgress(self._phase, total, total))

    def stop(self) -> None:
        """Stop polling, and wait for the thread."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        tracker = self._context.statusTracker()
        while not self._stop.wait(INTERVAL):
            with self._lock:
                self._poll(tracker)

    def _poll(self, tracker: "StatusTracker") -> None:
        stages = self._stages
        for stage in set(stages) | set(tracker.getActiveStageIds()):
            info = tracker.getStageInfo(stage)
            if info is not None:
                stages[stage] = (info.numCompletedTasks, info.numTasks)
                if self._planned:
                    self._rows[stage] = self._read_by(stage)
        if self._planned:
            # Stages that read what an earlier one has kept count it again.
            read = max(self._rows.values(), default=0)
            done = min(read if self._account is None else self._account.total.delivered,
                       self._planned)  # fmt: skip
            self._report(JobProgress(self._phase, done, self._planned, "rows"))
            return
        total = sum(part[1] for part in stages.values())
        if total:
            self._report(JobProgress(self._phase, sum(part[0] for part in stages.values()), total))

    def _read_by(self, stage: int) -> int:
        """Rows that the tasks of a stage have read, as the JVM's own bookkeeping has it."""
        store = self._context._jsc.sc().statusStore()
        return int(store.lastStageAttempt(stage).inputRecords())


@contextmanager
def watched(
    spark: "SparkSession",
    phase: str,
    report: Callable[[JobProgress], None] | None,
    planned: int = 0,
    account: "ReadAccount | None" = None,
) -> Iterator[Callable[[str], None]]:
    """Report progress while the block runs; gives a function that names the next phase.

    `planned` are the rows that the first phase reads, 0 for a phase that counts tasks. With an
    `account` it says how many were read, range by range.
    """
    if report is None:
        yield lambda phase: None
        return
    watch = Watch(spark, report, planned, account)
    watch.start(phase)
    try:
        yield watch.enter
        watch.finish()
    finally:
        watch.stop()
