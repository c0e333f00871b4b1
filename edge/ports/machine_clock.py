"""The machine's clocks for compiled code, without the GIL: what the hot paths read.

A `Kernel` reads them unless it was given another `Clock`; the commit thread's waits are the
system's own, and end by the same clock.
"""

import cython
from cython.cimports.posix.time import CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

SECOND_NS = cython.declare(cython.longlong, 1000000000)
MICROSECOND_NS = 1000
# What the time of day is counted in, ns.
WALL_UNIT_NS = cython.declare(cython.longlong, 1)


def count_microseconds() -> None:
    """Have the time of day in whole microseconds from now on, in all the process: an index that
    keeps more of each message's time has a byte more for it."""
    global WALL_UNIT_NS
    WALL_UNIT_NS = MICROSECOND_NS


@cython.cfunc
@cython.nogil
@cython.cdivision(True)
@cython.exceptval(check=False)
def machine_wall_ns() -> cython.longlong:
    """The time of day, ns since the epoch; may jump either way."""
    now: timespec
    clock_gettime(CLOCK_REALTIME, cython.address(now))
    return cython.cast(cython.longlong, now.tv_sec) * SECOND_NS + (
        cython.cast(cython.longlong, now.tv_nsec) // WALL_UNIT_NS * WALL_UNIT_NS
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def machine_monotonic_ns() -> cython.longlong:
    """ns since any moment, as event loops and waits of threads count; stands still in suspend."""
    now: timespec
    clock_gettime(CLOCK_MONOTONIC, cython.address(now))
    return cython.cast(cython.longlong, now.tv_sec) * SECOND_NS + now.tv_nsec
