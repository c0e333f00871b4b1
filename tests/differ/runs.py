"""The kinds of generated input, and how one series of seeds of a kind goes."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from os.path import commonprefix
from typing import Any

from tests.differ.accounts.compared import accounts
from tests.differ.configurations import compared as configurations
from tests.differ.histories import Step as History
from tests.differ.histories import copies, history
from tests.differ.intended import intended_history, intended_lines
from tests.differ.lines import Step, conversation
from tests.differ.lines_compared import Conversation
from tests.differ.pair import ACCOUNTS, JETSTREAM, REQUESTS, WORLDS, Pair
from tests.differ.player import Player
from tests.differ.requests.requests import requests
from tests.differ.shrink import shrunk
from tests.differ.starts.compared import starts
from tests.differ.starts.reloads import reloads

BESIDE = ACCOUNTS
"""Histories that go on at the same time."""

Make = Callable[[int], list[History]]
Run = Callable[[Iterable[int], int], tuple[list[str], int]]


def lines(world: str, seeds: Iterable[int], most: int) -> tuple[list[str], int]:
    """Conversations with both servers in one world: differences, and how many steps were tried."""
    found: list[str] = []
    tried = 0
    with Pair(WORLDS[world]) as pair:

        def differs(steps: list[Step]) -> bool:
            result = Conversation(pair.ports).play(steps)
            return result is not None and not intended_lines(steps, *result)

        for seed in seeds:
            steps = conversation(seed, world == "users")
            tried += len(steps)
            # What differs once and then not was a matter of time.
            if differs(steps) and differs(steps):
                small = smaller(shrunk(steps, differs), differs)
                result = Conversation(pair.ports).play(small)
                if result is None:
                    small, result = steps, Conversation(pair.ports).play(steps)
                if result is None:
                    continue
                found.append(told(f"lines {world} seed={seed}", small, result))
                print(found[-1], flush=True)
                if len(found) >= most:
                    break
    return found, tried


def smaller(steps: list[Step], differs: Callable[[list[Step]], bool]) -> list[Step]:
    """The same steps with fewer bytes."""
    for at, (conn, data, cuts) in enumerate(steps):
        if cuts and differs([*steps[:at], (conn, data, []), *steps[at + 1 :]]):
            cuts = []
            steps[at] = (conn, data, [])
        if cuts or len(data) > 3000:
            continue

        def fails(left: list[int], at: int = at, conn: int = conn) -> bool:
            return differs([*steps[:at], (conn, bytes(left), []), *steps[at + 1 :]])

        steps[at] = (conn, bytes(shrunk(data, fails)), [])
    return steps


def told(name: str, steps: list[Step], result: object) -> str:
    """A difference for a person."""
    shown = [f"  {conn}> {data!r} {cuts or ''}" for conn, data, cuts in steps]
    number, ours, theirs = result  # type: ignore[misc]
    return "\n".join([name, *shown, f"  step {number}", f"  ours   {ours}", f"  theirs {theirs}"])


def histories(
    make: Make, seeds: Iterable[int], most: int, world: str = JETSTREAM
) -> tuple[list[str], int]:
    """Histories of streams, many beside each other: differences, and how many steps were tried."""
    with Pair(world) as pair:
        series = Histories(make, pair.ports, world is REQUESTS)
        return asyncio.run(series.compared(list(seeds), most)), series.tried


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


KINDS: dict[str, Run] = {f"lines-{world}": partial(lines, world) for world in WORLDS}
KINDS["histories"] = partial(histories, history)
KINDS["requests"] = partial(histories, requests, world=REQUESTS)
KINDS["copies"] = partial(histories, copies)
KINDS["configurations"] = configurations
KINDS["starts"] = starts
KINDS["reloads"] = reloads
KINDS["accounts"] = accounts


def run(kind: str, seeds: Iterable[int], most: int) -> tuple[list[str], int]:
    """One kind."""
    return KINDS[kind](seeds, most)


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
