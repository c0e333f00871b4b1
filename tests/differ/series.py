"""Histories of one kind on both servers, many beside each other."""

import asyncio
from collections.abc import Callable
from os.path import commonprefix
from typing import Any

from tests.differ.histories import Step as History
from tests.differ.intended import intended_history
from tests.differ.pair import ACCOUNTS
from tests.differ.player import Player

BESIDE = ACCOUNTS
"""Histories that go on at the same time."""

Make = Callable[[int], list[History]]


class Histories:
    """Plays histories on two ports, each in an account of its own where there are such."""

    def __init__(self, make: Make, ports: tuple[int, int], accounts: bool) -> None:
        self.make = make
        self.ports = ports
        self.logins = [f"u{n}" if accounts else "" for n in range(BESIDE)]
        self.tried = 0

    async def compared(self, seeds: list[int], most: int) -> list[str]:
        """The differences that are found in these seeds' histories."""
        found: list[str] = []
        waiting = iter(seeds)
        suspects: list[int] = []

        async def work(login: str) -> None:
            for seed in waiting:
                steps = self.make(seed)
                self.tried += len(steps)
                if await self.played(steps, login) is not None:
                    suspects.append(seed)
                if len(suspects) > 3 * most:
                    return

        while len(found) < most:
            suspects.clear()
            await asyncio.gather(*(work(login) for login in self.logins))
            if not suspects:
                break
            for seed in suspects:
                if len(found) < most and (unlike := await self.alone(seed)):
                    found.append(unlike)
                    print(unlike, flush=True)
        return found

    async def played(
        self, steps: list[History], login: str = ""
    ) -> tuple[int, Any, Any] | None:
        """What differs in one history, unless that is by intention."""
        result = await Player(self.ports, login or self.logins[0]).play(steps)
        return None if result is not None and intended_history(steps, *result) else result

    async def alone(self, seed: int) -> str:
        """What differs in one history when nothing goes on beside it; empty when nothing does,
        each time: what differs once and then not was a matter of time."""
        steps = self.make(seed)
        results = [await self.played(steps) for _ in range(2)]
        if None in results or results[0][0] != results[1][0]:  # type: ignore[index]
            return ""
        small = await self.small(steps)
        number, ours, theirs = await self.played(small) or results[0]  # type: ignore[misc]
        shown = [f"  {number} {step}" for number, step in enumerate(small)]
        unlike = apart(
            "\n".join(each for each in ours if each not in theirs),
            "\n".join(each for each in theirs if each not in ours),
        )
        return "\n".join([f"histories seed={seed}", *shown, f"  step {number}", *unlike])

    async def small(self, steps: list[History]) -> list[History]:
        """The steps that the difference takes."""
        result = await self.played(steps)
        kept = steps[: result[0] + 1] if result else steps
        at = len(kept) - 2
        while at >= 0:
            fewer = kept[:at] + kept[at + 1 :]
            if await self.played(fewer) is not None and await self.played(fewer) is not None:
                kept = fewer
            at -= 1
        return kept


def apart(ours: str, theirs: str) -> tuple[str, str]:
    """Two texts without what they begin and end with alike."""
    begin = len(commonprefix([ours, theirs]))
    end = len(commonprefix([ours[begin:][::-1], theirs[begin:][::-1]]))
    around = 60
    left = max(0, begin - around)
    right = max(0, end - around)
    return (
        f"  ours   {ours[left : len(ours) - right]}",
        f"  theirs {theirs[left : len(theirs) - right]}",
    )
