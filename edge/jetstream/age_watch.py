"""Notices when the wall clock is set forward, so that nothing ages by it.

A gateway without a battery-backed clock boots in 1970 and learns the time later. Whatever was
stored meanwhile would be decades old at once. The watch compares the wall clock with one that only
runs (since boot, sleep included) and tells the streams how far the wall clock was set.
"""

import time
from collections.abc import Callable
from typing import Any

# Slower clocks drift, and time servers step, by less than this.
JUMP_NS = 60 * 1_000_000_000
# Streams ask before anything ends by age; this is for nodes where nothing does.
INTERVAL_S = 30.0

Clock = Callable[[], int]


def running_ns() -> int:
    """Time since boot in ns; runs through sleep."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class AgeWatch:
    """Compares two clocks; `streams()` gives the timers to tell (`clock_set(by_ns, now_ns)`)."""

    def __init__(
        self,
        loop: Any,
        streams: Callable[[], list[Any]],
        wall: Clock = time.time_ns,
        running: Clock = running_ns,
    ) -> None:
        self.loop = loop
        self.streams = streams
        self.wall = wall
        self.running = running
        self.difference = wall() - running()
        self.timer: Any = None

    def start(self) -> None:
        """Look from time to time."""
        self.check()
        self.timer = self.loop.call_later(INTERVAL_S, self.start)

    def check(self) -> int:
        """Look now; returns by how many ns the wall clock was set forward since the last look."""
        now = self.wall()
        difference = now - self.running()
        jump = difference - self.difference
        self.difference = difference
        if jump < JUMP_NS:
            return 0
        for timers in self.streams():
            timers.clock_set(jump, now)
        return jump

    def stop(self) -> None:
        """Look no more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
