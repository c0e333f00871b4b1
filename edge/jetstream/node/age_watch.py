"""Notices when the wall clock is stepped, so that nothing ages by it, and tells the streams.

The kernel calls `check` when its time looks odd; it is called from time to time as well, and before
anything ends by age.
"""

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from headwater.edge.jetstream.model.times import format_time
from headwater.edge.jetstream.stream.age_clock import AgeClock, Clocks, Kept
from headwater.edge.ports.ports import SystemClock
from headwater.edge.ports.uptime import boot_id, running_ns

log = logging.getLogger("headwater.jetstream")

# Streams ask before anything ends by age; this is for nodes where nothing does.
INTERVAL_S = 30.0
# Where the age clock is kept in the node's log.
OWNER = b"\0clock"
KEY = b"age"


def machine_clocks(time_source: Any) -> Clocks:
    """The clocks of this machine, or those of a `ports.Clock`."""
    if time_source is not None:
        boot = getattr(time_source, "boot", "")
        return Clocks(time_source.wall_ns, time_source.monotonic_ns, boot)
    return Clocks(SystemClock().wall_ns, running_ns, boot_id())


def kept_in(log_: Any) -> Kept | None:
    """What the last run kept, None when there is nothing readable."""
    value = log_.states(OWNER).get(KEY, (None, []))[0]
    try:
        return msgspec.json.decode(value, type=Kept) if value else None
    except msgspec.DecodeError:
        log.warning(
            "the age clock in the log is unreadable; messages age by the wall clock from now on"
        )
        return None


class AgeWatch:
    """The age clock of a node. `streams()` gives the timers to tell (`clock_set(by_ns)`)."""

    def __init__(
        self,
        kernel: Any,
        streams: Callable[[], list[Any]],
        kept: Any = None,
        newest: Callable[[], int] = lambda: 0,
        clocks: Clocks | None = None,
    ) -> None:
        """`kept` is the node's commit log, None to keep nothing; `newest` see AgeClock."""
        self.kernel = kernel
        self.streams = streams
        self.log = kept
        found = kept_in(kept) if kept is not None else None
        self.clock = AgeClock(clocks or machine_clocks(kernel.source()), found, newest)
        self.timer: Any = None
        before = found.offset if found is not None else 0
        if self.offset != before:
            self._log_step(self.offset - before)
        if self.offset != before or not self.clock.resumed:
            self._keep()

    @property
    def offset(self) -> int:
        """Wall clock less age clock, in ns."""
        return self.clock.offset

    def start(self) -> None:
        """Look from time to time."""
        self.kernel.clock_watch = self.check
        self.check()
        self.timer = self.kernel.loop.call_later(INTERVAL_S, self.start)

    def check(self) -> int:
        """Look now; returns by how many ns the wall clock was stepped since the last look."""
        step = self.clock.look()
        if step:
            self._log_step(step)
            self._keep()
            for timers in self.streams():
                timers.clock_set(step)
        return step

    def _log_step(self, step: int) -> None:
        log.warning(
            "the clock was set %s by %.1f s and is %s now; nothing ages by that",
            "forward" if step > 0 else "back",
            abs(step) / 1e9,
            format_time(self.clock.moment[0]),
        )

    def _keep(self) -> None:
        if self.log is not None:
            self.log.put_state(OWNER, KEY, msgspec.json.encode(self.clock.kept))
            self.kernel.kick()

    def stop(self) -> None:
        """Look no more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.kernel.clock_watch == self.check:
            self.kernel.clock_watch = None
