"""One device's detector of anomalies: it sees values in their order, and keeps a few numbers.

A value is strange by as many standard deviations as it, or its change since the last one, is away
from what was usual lately. Only the strangest value for a while counts, so that an episode is told
once. The method is its own; scores on labelled series are in docs/SPARK.md.
"""

import math
from typing import Any

#: How many values "usual" reaches back, about.
MEMORY = 2000
#: Values of a device before anything is judged.
WARM_UP = 50
#: For so many values, only what is stranger than all of them counts.
QUIET = 600
#: Deviations below this share of the mean are taken for it: a device that hardly moves is not
#: strange when it moves a little.
STEADY = 0.01
THRESHOLD = 4.1
#: A value counts as no farther away than so many deviations: one broken reading must not make
#: all that comes after it usual. What stays far away is usual after a few values.
FARTHEST = 100.0
#: No value is farther away than this, whose square is a number too.
LARGEST = 1e150


class Usual:
    """Mean and variance of what came lately, with the weight of what came falling."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.count = 0
        self.mean = 0.0
        self.variance = 0.0

    def strangeness(self, value: float) -> float:
        """By how many deviations a value is away; 0 during the warm-up. The value counts after."""
        away = max(-LARGEST, min(LARGEST, value - self.mean))
        found = 0.0
        if self.count >= WARM_UP:
            least = max(STEADY * abs(self.mean), 1e-9)
            deviation = max(math.sqrt(self.variance), least)
            found = abs(away) / deviation
            away = max(-FARTHEST * deviation, min(FARTHEST * deviation, away))
        self.count += 1
        share = max(1.0 / self.count, 1.0 / self.memory)
        self.mean += share * away
        self.variance = (1.0 - share) * (self.variance + share * away * away)
        return found


class Detector:
    """`feed` values, which are numbers; what is no finite number is passed over."""

    def __init__(self, memory: int = MEMORY, quiet: int = QUIET) -> None:
        """`memory` and `quiet` in values, at least 1."""
        self.quiet = quiet
        self._value = Usual(memory)
        self._change = Usual(memory)
        self._last: float | None = None
        self._number = 0
        self._tops: list[tuple[int, float]] = []
        """What was strange within `quiet` values, of falling strangeness."""

    def feed(self, value: float) -> float:
        """How strange a value is, in deviations; 0 unless it is the strangest for a while."""
        if not math.isfinite(value):
            return 0.0
        change = 0.0 if self._last is None else value - self._last
        found = max(self._value.strangeness(value), self._change.strangeness(change))
        self._last = value
        self._number += 1
        tops = self._tops
        while tops and tops[0][0] < self._number - self.quiet:
            del tops[0]
        counts = not tops or found > tops[0][1]
        while tops and tops[-1][1] <= found:
            tops.pop()
        tops.append((self._number, found))
        return found if counts else 0.0

    def state(self) -> dict[str, Any]:
        """All that it knows, as JSON can have it."""
        return {
            "value": [self._value.count, self._value.mean, self._value.variance],
            "change": [self._change.count, self._change.mean, self._change.variance],
            "last": self._last,
            "number": self._number,
            "tops": self._tops,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a `state`."""
        for usual, name in ((self._value, "value"), (self._change, "change")):
            usual.count, usual.mean, usual.variance = state[name]
        self._last, self._number = state["last"], state["number"]
        self._tops = [(int(number), float(found)) for number, found in state["tops"]]
