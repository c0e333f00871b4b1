"""Progress for people and for logs: bars with ETA on a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

LINE_EVERY_S = 2.0
"""Time between two plain lines of one task."""


class Bars:
    """Several named tasks with a total each. Use as a context manager."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self._plain = not self.console.is_terminal
        self._progress = Progress(
            TextColumn("{task.description:<28}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=self._plain,
        )
        self._tasks: dict[str, TaskID] = {}
        self._began: dict[str, float] = {}
        self._said: dict[str, float] = {}
        self._done: set[str] = set()

    def __enter__(self) -> "Bars":
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """One line about what happens."""
        if self._plain:
            print(text, file=sys.stderr, flush=True)
        else:
            self._progress.console.print(text, highlight=False)

    def update(self, name: str, done: int, total: int) -> None:
        """`done` of `total` of a task; the first call adds it."""
        if self._plain:
            self._line(name, done, total)
        elif name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, completed=done, total=total)
        else:
            self._progress.update(self._tasks[name], completed=done, total=total)

    def _line(self, name: str, done: int, total: int) -> None:
        now = time.monotonic()
        began = self._began.setdefault(name, now)
        complete = done >= total
        recent = now - self._said.get(name, began) < LINE_EVERY_S
        if name in self._done or (recent and not complete):
            return
        self._said[name] = now
        if complete:
            self._done.add(name)
        eta = "done" if complete else "ETA ?"
        if not complete and done:
            eta = f"ETA {(now - began) * (total - done) / done:.0f} s"
        self.say(f"{name}: {done}/{total} {eta}")
