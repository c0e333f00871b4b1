"""Waits between tries of what a server may keep waiting, as it restarts or elects a leader."""

import random
import time

FIRST_S = 0.1
MAX_S = 2.0


def longest_s(failures: int) -> float:
    """The longest wait in seconds after so many failures in a row, 0 or more: it doubles up to
    `MAX_S`."""
    doublings = min(failures, 10)  # an hour of failures is too many for a float
    return float(min(MAX_S, FIRST_S * 2**doublings))


def wait_s(failures: int) -> float:
    """Seconds to wait after so many failures: at random a half of `longest_s` and more, so that
    tasks which fail together do not come back together."""
    return longest_s(failures) * random.uniform(0.5, 1.0)


class Waits:
    """Between the tries of one request, for `seconds` at most."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._failures = 0

    def over(self) -> bool:
        """Whether there is no time for another try."""
        return time.monotonic() + longest_s(self._failures) > self._deadline

    def wait(self) -> None:
        """Let time pass before the next try. A task of Spark has a process for itself."""
        time.sleep(wait_s(self._failures))
        self._failures += 1
