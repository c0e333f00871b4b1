"""Names and tags that mean harm, in templates of scoped signing keys: nobody may do more than with
nats-server, and less only where that is meant."""

import os
import random
from concurrent.futures import ThreadPoolExecutor

from bench.servers import Server
from tests.edge.broker.authorize.hostile_templates import (
    Case,
    Decided,
    cases,
    configuration,
    decided,
)
from tests.operator_realm import SERVERS, recipe

COUNT = int(os.environ.get("HEADWATER_TEMPLATES", "600"))
"""Of some 18,000 cases."""


def is_stricter(case: Case, lacking: Decided) -> bool:
    """Whether less is meant. A rule with a control byte, or one that a space beyond ASCII splits
    into what is no subject, refuses the user. What a wide subscription gets is what rules allow:
    nats-server takes a `>` for a token that `*` allows."""
    wide = all(each.startswith("MSG ") for each in lacking)
    return case.is_odd() or (wide and "deny" not in case.form)


def test_nobody_may_do_more() -> None:
    every = list(cases())
    chance = random.Random(os.environ.get("HEADWATER_SEED", "templates"))
    wanted = chance.sample(every, min(COUNT, len(every)))

    def one(name: str) -> list[Decided]:
        with Server(recipe(name, configuration())) as server:
            return decided(server.port, wanted)

    with ThreadPoolExecutor(len(SERVERS)) as pool:
        ours, theirs = pool.map(one, SERVERS)
    rows = list(zip(wanted, ours, theirs, strict=True))
    more = [f"{case}: {sorted(here - there)}" for case, here, there in rows if here - there]
    assert not more, "\n".join(more[:10])
    less = [
        f"{case}: {sorted(there - here)[:10]}"
        for case, here, there in rows
        if there - here and not is_stricter(case, there - here)
    ]
    assert not less, "\n".join(less[:10])
    assert sum(map(bool, ours)) > len(wanted) // 2
