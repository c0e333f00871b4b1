"""Makes the list of faults of a failing run as short as can be."""

from collections.abc import Callable

from tests.sim.faults import Fault

TRIES_MAX = 200
"""Runs spent on it."""


def shrink(plan: list[Fault], fails: Callable[[list[Fault]], bool]) -> list[Fault]:
    """Leave out ever smaller parts as long as the run still fails (delta debugging)."""
    tries = 0
    size = max(1, len(plan) // 2)
    while plan and tries < TRIES_MAX:
        at = 0
        shorter = False
        while at < len(plan) and tries < TRIES_MAX:
            rest = plan[:at] + plan[at + size :]
            tries += 1
            if fails(rest):
                plan, shorter = rest, True
            else:
                at += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    return plan
