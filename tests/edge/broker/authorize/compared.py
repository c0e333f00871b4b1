"""One world on both servers: what they decide differently, and the smallest world that shows it."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from itertools import combinations
from typing import Any

from bench.servers import Server, ServerFailed
from headwater.edge.subjects.tokens import overlap
from tests.edge.broker.authorize.played import Decisions, decisions
from tests.edge.broker.authorize.worlds import World, config
from tests.operator_realm import SERVERS, recipe

TRIES_MAX = 120
"""Worlds tried to make one smaller; each takes a second or two."""
AGAIN = 5
"""So often a world must differ."""

SHOWN = 10
REFUSED: Decisions = {"the configuration": ["refused"]}


def differences(world: World) -> list[str]:
    """What both servers decide differently, in words, each time that they are asked.

    A member of a queue group that hears a message by two imports gets one of them by chance."""
    found: list[str] = []
    for _ in range(AGAIN):
        found = _differences(world)
        if not found:
            break
    return found


def _differences(world: World) -> list[str]:
    with ThreadPoolExecutor(len(SERVERS)) as pool:
        ours, theirs = pool.map(lambda name: _decided(name, world), SERVERS)
    if (ours == REFUSED) != (theirs == REFUSED) and _has_two_ways(world):
        return []
    return [
        f"{what}\n    headwater: {_rest(ours, theirs, what)}\n"
        f"    nats-server: {_rest(theirs, ours, what)}"
        for what in sorted(ours.keys() | theirs.keys())
        if ours.get(what) != theirs.get(what) and not is_stricter(what, theirs.get(what))
    ]


def _has_two_ways(world: World) -> bool:
    """Whether an import may be of two exports: nats-server judges it by one of them, by chance."""
    return any(
        one["kind"] == other["kind"]
        and one["subject"] != other["subject"]
        and overlap(one["subject"].encode(), other["subject"].encode())
        for account in world["accounts"].values()
        for one, other in combinations(account["exports"], 2)
    )


def decided(world: World) -> int:
    """How many things this world tries."""
    return len(world["users"]) + sum(len(world[kind]) for kind in ("asks", "holds", "pubs"))


def is_stricter(what: str, theirs: list[str] | None) -> bool:
    """nats-server takes the `>` of a subscription for a token that `*` allows; not followed here,
    since it shows more than `*` does."""
    return "SUB" in what and ">" in what and theirs == []


def _decided(name: str, world: World) -> Decisions:
    try:
        with Server(recipe(name, config(world))) as server:
            return decisions(server.port, world)
    except ServerFailed:
        return REFUSED


def _rest(one: Decisions, other: Decisions, what: str) -> str:
    if what not in one:
        return "not tried"
    return str([each for each in one[what] if each not in other.get(what, [])])


def shrunk(world: World, fails: Callable[[World], Any]) -> World:
    """A smaller world that still fails: without users, shares, rules and tries, as many as can
    be left out."""
    tries = 0
    shorter = True
    while shorter:
        shorter = False
        for path in list(_lists(world)):
            size = len(_at(world, path))
            while size:
                at = 0
                while at < len(_at(world, path)) and tries < TRIES_MAX:
                    smaller = deepcopy(world)
                    del _at(smaller, path)[at : at + size]
                    tries += 1
                    if fails(smaller):
                        world, shorter = smaller, True
                    else:
                        at += size
                size //= 2
    return world


def _lists(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where lists are that something may be left out of, the longest first."""
    found = [("pubs",), ("asks",), ("users",), ("holds",)]
    found += [
        ("accounts", name, kind) for name in value["accounts"] for kind in ("imports", "exports")
    ]
    yield from (path + each for each in found)


def _at(world: World, path: tuple[Any, ...]) -> list[Any]:
    found: Any = world
    for step in path:
        found = found[step]
    return found  # type: ignore[no-any-return]


def told(seed: int, world: World, found: list[str]) -> str:
    """A failure, with what is needed to see it again."""
    head = (
        f"seed {seed} ({world['mode']}): {len(found)} decisions differ; "
        f"make decisions SEED={seed} RUNS=1"
    )
    return "\n".join([head, *found[:SHOWN], json.dumps(world)])
