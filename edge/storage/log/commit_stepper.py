"""The commit thread's work without the thread, for a log on a disk in memory: the event loop does
one round whenever something was queued, so that everything happens in one order."""

import asyncio
from collections.abc import Callable
from typing import Any


class CommitStepper:
    """`thread` is a CommitThread that was not started; `done` is called after every round."""

    def __init__(
        self,
        thread: Any,
        loop: asyncio.AbstractEventLoop,
        done: Callable[[], None],
    ) -> None:
        self._thread = thread
        self._loop = loop
        self._done = done
        self._asked = False
        self._timer: asyncio.TimerHandle | None = None
        self.stopped = False

    def ask(self) -> None:
        """Do a round soon."""
        if not self._asked:
            self._asked = True
            self._loop.call_soon(self.step)

    def step(self) -> None:
        """One round, and another when the next sync by the clock is due."""
        self._asked = False
        if self.stopped:
            return
        self._thread.step(int(self._loop.time() * 1e9))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        left = self._thread.due_in
        if left >= 0:
            self._timer = self._loop.call_later(left, self.step)
        self._done()
