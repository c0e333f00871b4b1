"""What holds between two times of day, while the clock of the machine may be set.

Timers of the loop count seconds, so one that is set for a time of day is wrong once the clock was
set, or the machine slept. A gateway that begins in 1970 would wait for half a century.
"""

import asyncio
from collections.abc import Callable

from headwater.edge.kernel.kernel import Kernel

LOOK_S = 5.0
"""Within which it is noticed that the clock was set."""
FOR_EVER = float("inf")


class WallWindow:
    """Calls `action` when the time of day leaves a window, once for each `watch`."""

    def __init__(self, kernel: Kernel, action: Callable[[], None]) -> None:
        self._kernel = kernel
        self._action = action
        self._since_s, self._until_s = 0.0, FOR_EVER
        self._timer: asyncio.TimerHandle | None = None

    def now_s(self) -> float:
        """The time of day in Unix seconds."""
        return self._kernel.wall_ns() / 1e9

    def watch(self, since_s: float, until_s: float) -> None:
        """Watch this window, in Unix seconds, from now on; no other any more. One without ends is
        never left."""
        self.stop()
        self._since_s, self._until_s = since_s, until_s
        if since_s > 0 or until_s < FOR_EVER:
            self._arm()

    def _arm(self) -> None:
        wait = min(LOOK_S, max(0.0, self._until_s - self.now_s()))
        self._timer = self._kernel.loop.call_later(wait, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._since_s <= self.now_s() < self._until_s:
            self._arm()
        else:
            self._action()

    def stop(self) -> None:
        """Watch nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
