"""Limits, discards, roll-ups, deletes and purges in random order leave what nats-server leaves."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

Steps = list[tuple[Any, ...]]
SUBJECTS = ("r.a", "r.b", "r.c.d", "r.c.e")
FILTERS = ("r.a", "r.*", "r.c.*", "r.>", "r.nope", ">", "r.c.d")
INFO = ("STREAM.INFO.R", {"deleted_details": True, "subjects_filter": ">"})


def config(chance: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": "R",
        "subjects": ["r.>"],
        "storage": chance.choice(["file", "memory"]),
        "max_msgs": chance.choice([-1, -1, 5, 12]),
        "max_bytes": chance.choice([-1, -1, 400, 900]),
        "max_msgs_per_subject": chance.choice([-1, -1, 1, 3]),
        "max_msg_size": chance.choice([-1, -1, 120]),
        "discard": chance.choice(["old", "old", "new"]),
        "allow_rollup_hdrs": True,
    }
    limited = found["discard"] == "new" and found["max_msgs_per_subject"] > 0
    if limited and chance.random() < 0.6:
        found["discard_new_per_subject"] = True
    return found


def purge(chance: random.Random, last: int) -> tuple[Any, ...]:
    body: dict[str, Any] = {}
    if chance.random() < 0.6:
        body["filter"] = chance.choice(FILTERS)
    kind = chance.random()
    if kind < 0.3:
        body["seq"] = chance.randint(0, last + 3)
    elif kind < 0.6:
        body["keep"] = chance.randint(0, 4)
    elif kind < 0.65:
        body.update(seq=3, keep=1)
    return "STREAM.PURGE.R", body


def update(chance: random.Random, before: dict[str, Any]) -> tuple[Any, ...]:
    per_subject = chance.choice([-1, 2, 3])
    if before.get("discard_new_per_subject"):
        per_subject = 2
    return (
        "STREAM.UPDATE.R",
        {
            **before,
            "max_msgs": chance.choice([-1, 4, 8]),
            "max_bytes": chance.choice([-1, 300, 700]),
            "max_msgs_per_subject": per_subject,
        },
    )


def script(seed: int) -> Steps:
    """A stream with random limits, and 40 things that happen to it."""
    chance = random.Random(seed)
    wanted = config(chance)
    steps: Steps = [("STREAM.CREATE.R", wanted), ("=r.a", b"1"), ("=r.b", b"2")]
    last = 2
    for _ in range(40):
        kind = chance.random()
        if kind < 0.65:
            headers = None
            if chance.random() < 0.06:
                headers = {"Nats-Rollup": chance.choice(["sub", "all"])}
            payload = b"x" * chance.choice([0, 5, 40, 100, 150])
            steps.append((f"={chance.choice(SUBJECTS)}", payload, headers))
            last += 1
        elif kind < 0.77:
            erase = {"seq": chance.randint(1, last + 2), "no_erase": chance.random() < 0.5}
            steps.append(("STREAM.MSG.DELETE.R", erase))
        elif kind < 0.95:
            steps.append(purge(chance, last))
        else:
            steps.append(update(chance, wanted))
        steps.append(INFO)
    return [*steps, ("STREAM.DELETE.R",)]


@pytest.mark.parametrize("seed", range(24))
async def test_random_histories(
    compare: Callable[[Steps], Awaitable[None]], seed: int
) -> None:
    await compare(script(seed))
