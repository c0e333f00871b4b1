"""A failing list made small: the steps that it takes, and no more."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

BUDGET_S = 15.0
"""How long one list is made smaller."""


def shrunk(
    steps: Sequence[T], fails: Callable[[list[T]], bool], budget_s: float = BUDGET_S
) -> list[T]:
    """The steps without all that can be left out while `fails` stays true."""
    kept = list(steps)
    size = len(kept)
    end = time.monotonic() + budget_s
    while size >= 1:
        at = 0
        while at < len(kept) and time.monotonic() < end:
            tried = kept[:at] + kept[at + size :]
            if tried and fails(tried):
                kept = tried
            else:
                at += size
        size = size // 2
    return kept
