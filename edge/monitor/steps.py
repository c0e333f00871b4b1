"""Long pages in steps: between two of them the loop does its other work.

A page that lists thousands of streams takes longer than a message may wait. So whoever makes one
yields where it may rest, and returns the page in the end. What it describes may be gone after a
rest.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import TypeVar

STRETCH_NS = 2_000_000
"""Nanoseconds for which a page is made before it rests."""

T = TypeVar("T")
Steps = Generator[None, None, T]


def at_once(steps: Steps[T]) -> T:
    """Make a page without a rest."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made


class PageMaker:
    """Makes pages one after the other: many that are wanted at once rest as often as one."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """`clock` is monotonic, in nanoseconds."""
        self._clock = clock
        self._turn = asyncio.Lock()

    async def make(self, steps: Steps[T]) -> T:
        """The page. Raises what its steps raise."""
        async with self._turn:
            begun = self._clock()
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    made: T = end.value
                    return made
                if self._clock() - begun >= STRETCH_NS:
                    await asyncio.sleep(0)
                    begun = self._clock()
