"""How far a Spark job is, for a progress bar: tasks done of tasks known."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext, StatusTracker
    from pyspark.sql import SparkSession

#: Seconds between two looks at the scheduler.
INTERVAL = 0.25


@dataclass(frozen=True)
class JobProgress:
    """`done` of `total` tasks in `phase`. The total grows while stages start."""

    phase: str
    done: int
    total: int


class Watch:
    """Polls the scheduler in its own thread; owns that thread."""

    def __init__(self, spark: "SparkSession", report: Callable[[JobProgress], None]) -> None:
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
            self._phase = phase

    def finish(self) -> None:
        """Report all tasks of the phase as done."""
        with self._lock:
            total = sum(part[1] for part in self._stages.values())
            if total:
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
        total = sum(part[1] for part in stages.values())
        if total:
            self._report(JobProgress(self._phase, sum(part[0] for part in stages.values()), total))


@contextmanager
def watched(
    spark: "SparkSession", phase: str, report: Callable[[JobProgress], None] | None
) -> Iterator[Callable[[str], None]]:
    """Report progress while the block runs; gives a function that names the next phase."""
    if report is None:
        yield lambda phase: None
        return
    watch = Watch(spark, report)
    watch.start(phase)
    try:
        yield watch.enter
        watch.finish()
    finally:
        watch.stop()
