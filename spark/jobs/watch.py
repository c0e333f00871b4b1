"""How far a Spark job is, for a progress bar: tasks done of tasks known."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

#: Seconds between two looks at the scheduler.
INTERVAL = 0.25


@dataclass(frozen=True)
class Progress:
    """`done` of `total` tasks in `phase`. The total grows while stages start."""

    phase: str
    done: int
    total: int


class Watch:
    """Polls the scheduler in its own thread; owns that thread."""

    def __init__(self, spark: "SparkSession", report: Callable[[Progress], None]) -> None:
        self._context: SparkContext = spark.sparkContext
        self._report = report
        self._phase = ""
        self._stages: dict[int, tuple[int, int]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spark-progress", daemon=True)

    def start(self, phase: str) -> None:
        """Start to poll."""
        self._phase = phase
        self._thread.start()

    def enter(self, phase: str) -> None:
        """A new phase: tasks count from zero again."""
        self._stages = {}
        self._phase = phase

    def stop(self) -> None:
        """Stop polling, and wait for the thread."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        tracker = self._context.statusTracker()
        while not self._stop.wait(INTERVAL):
            stages = self._stages
            for stage in set(stages) | set(tracker.getActiveStageIds()):
                info = tracker.getStageInfo(stage)
                if info is not None:
                    stages[stage] = (info.numCompletedTasks, info.numTasks)
            done = sum(part[0] for part in stages.values())
            total = sum(part[1] for part in stages.values())
            if total:
                self._report(Progress(self._phase, done, total))


@contextmanager
def watched(
    spark: "SparkSession", phase: str, report: Callable[[Progress], None] | None
) -> Iterator[Callable[[str], None]]:
    """Report progress while the block runs; gives a function that names the next phase."""
    if report is None:
        yield lambda phase: None
        return
    watch = Watch(spark, report)
    watch.start(phase)
    try:
        yield watch.enter
    finally:
        watch.stop()
