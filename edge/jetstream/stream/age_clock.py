"""The node's age clock: how much time has really passed, whatever the wall clock is set to.

It began as the wall clock, never goes back, and runs with a clock that nobody sets (since boot,
sleep included). `offset` is the wall clock less the age clock: 0 until the wall clock is stepped.
What ends by age is measured on it, so neither a gateway that boots in 1970 and learns the time
later, nor a clock that jumps years ahead and back, ends anything early.

What is kept makes it go on after a restart. Within one boot of the machine both clocks tell how
long the node was off, and the lesser counts, unless the wall clock went back. After another boot
the wall clock tells it, unless it went back or claims more than `OFF_MAX_NS`: then that time is
unknown, and counts as none.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

# The wall clock may run apart from the other one by this much between two looks: time servers slew
# by less, and what they step by more than this is a step.
STEP_NS = 1_000_000_000
# A node that claims to have been off for longer most likely has a wrong clock.
OFF_MAX_NS = 400 * 24 * 3600 * 1_000_000_000


class Kept(msgspec.Struct):
    """What survives a restart: both clocks at one moment, of one boot."""

    wall: int
    running: int
    offset: int
    boot: str


@dataclass
class Clocks:
    """What the age clock is made from, as functions of nothing."""

    wall: Callable[[], int]
    """ns since the epoch; may be set."""
    running: Callable[[], int]
    """ns since some moment of this boot; nobody sets it."""
    boot: str = ""
    """Names this boot of the machine; empty when that is unknown."""


class AgeClock:
    """`offset` is right as of the last `look`."""

    def __init__(
        self, clocks: Clocks, kept: Kept | None = None, newest: Callable[[], int] = lambda: 0
    ) -> None:
        """`newest` gives the age time of the newest message stored, 0 for none: the age clock is
        past that. It is asked when the wall clock cannot be believed."""
        self.clocks = clocks
        self.offset = 0
        self.difference = 0
        self.moment: tuple[int, int] = (0, 0)
        self._read()
        self.difference = self.moment[0] - self.moment[1]
        self.resumed = kept is not None and self._same_boot(kept)
        if kept is not None:
            self.offset = self._resume(kept, newest)

    def _read(self) -> None:
        """Both clocks at one moment, even when this thread is held up between."""
        for _ in range(8):
            before = self.clocks.running()
            wall = self.clocks.wall()
            running = self.clocks.running()
            if running - before < STEP_NS // 10:
                break
        self.moment = (wall, running)

    def _same_boot(self, kept: Kept) -> bool:
        return bool(kept.boot) and kept.boot == self.clocks.boot and kept.running <= self.moment[1]

    def _resume(self, kept: Kept, newest: Callable[[], int]) -> int:
        wall, running = self.moment
        age = kept.wall - kept.offset
        passed = wall - kept.wall
        if self._same_boot(kept):
            ran = running - kept.running
            if 0 <= passed < ran + STEP_NS:
                return kept.offset
            return wall - (age + ran)
        if 0 <= passed <= OFF_MAX_NS:
            return kept.offset
        return wall - max(age, newest())

    @property
    def kept(self) -> Kept:
        """What to keep, as of the last look."""
        return Kept(self.moment[0], self.moment[1], self.offset, self.clocks.boot)

    def look(self) -> int:
        """Look at the clocks; returns by how many ns the wall clock was stepped since the last
        look (either way), 0 when it was not."""
        self._read()
        difference = self.moment[0] - self.moment[1]
        step = difference - self.difference
        self.difference = difference
        if abs(step) < STEP_NS:
            return 0
        self.offset += step
        return step
