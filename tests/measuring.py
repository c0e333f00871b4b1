"""Bounds of time on a machine that has other things to do.

A test that judges a time compares it with one that is measured in the same run: of something else
that it does, or of the piece of work here. What it may take has ample room besides; whoever needs
more than that, or the whole machine, is marked `alone`. `tests/house/test_bounds.py` says so.
"""

import contextlib
import gc
import time
from collections.abc import Callable, Iterator

PIECE_S = 0.07
"""What the piece of work takes on an idle machine of the kind that the bounds are meant for."""

ROUNDS = 3


def _piece() -> int:
    total = 0
    for number in range(1_000_000):
        total += number * number
    return total


def within(
    spent: float, seconds: float, clock: Callable[[], float] = time.monotonic
) -> bool:
    """Whether something took no more than so many seconds of an idle machine, when this one is as
    busy as it is. With `time.process_time` as the clock, only how fast its processor is counts."""
    return spent < seconds or spent < seconds * slowness(clock)


def slowness(clock: Callable[[], float]) -> float:
    """By how much the piece of work takes longer than on an idle machine; 1 or more."""
    slowest = 0.0
    for _ in range(ROUNDS):
        began = clock()
        _piece()
        slowest = max(slowest, clock() - began)
    return max(1.0, slowest / PIECE_S)


@contextlib.contextmanager
def no_garbage() -> Iterator[None]:
    """Nobody looks for garbage meanwhile. A look that a measured piece of work sets off would count
    what the worker holds, not what the work costs."""
    leave = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if leave:
            gc.enable()


def leave_out_what_is_there() -> None:
    """What there is now is not looked through any more when garbage is collected.

    A worker holds all of the suite's tests: half of its processor time would go into that.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # How often all is looked through goes by what there was the last time.
