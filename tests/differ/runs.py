"""The kinds of generated input, and how one series of seeds of a kind goes."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from tests.differ.accounts.compared import accounts
from tests.differ.clusters.compared import clusters
from tests.differ.configurations import compared as configurations
from tests.differ.histories import copies, history
from tests.differ.intended import intended_lines
from tests.differ.lines import Step, conversation
from tests.differ.lines_compared import Conversation
from tests.differ.pair import JETSTREAM, REQUESTS, WORLDS, Pair
from tests.differ.requests.requests import requests
from tests.differ.series import Histories, Make
from tests.differ.shrink import shrunk
from tests.differ.starts.compared import starts
from tests.differ.starts.reloads import reloads

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


KINDS: dict[str, Run] = {f"lines-{world}": partial(lines, world) for world in WORLDS}
KINDS["histories"] = partial(histories, history)
KINDS["requests"] = partial(histories, requests, world=REQUESTS)
KINDS["copies"] = partial(histories, copies)
KINDS["configurations"] = configurations
KINDS["starts"] = starts
KINDS["reloads"] = reloads
KINDS["accounts"] = accounts
KINDS["clusters"] = clusters


def run(kind: str, seeds: Iterable[int], most: int) -> tuple[list[str], int]:
    """One kind."""
    return KINDS[kind](seeds, most)
