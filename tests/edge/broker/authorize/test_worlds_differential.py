"""Accounts that share, and users of every kind: both servers decide the same on what they try."""

import os
import random

import pytest

from tests.edge.broker.authorize.compared import decided, differences, shrunk, told
from tests.edge.broker.authorize.worlds import World, make

SEEDS = random.Random(os.environ.get("HEADWATER_SEED", "one door")).sample(range(10**6), 3)
"""`make decisions` runs many more."""


@pytest.mark.parametrize("mode", ["conf", "jwt"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_decisions(seed: int, mode: str) -> None:
    world = make(seed, mode)
    assert decided(world) > 200
    found = differences(world)
    assert not found, told(seed, world, found)


def test_a_failing_world_is_made_small() -> None:
    """As far as it still has what made it fail."""
    world = make(1, "jwt")
    guilty = world["pubs"][17]

    def fails(tried: World) -> bool:
        return guilty in tried["pubs"]

    small = shrunk(world, fails)
    assert small["pubs"] == [guilty]
    assert not small["users"] and not small["accounts"]["A"]["exports"]
    assert len(world["pubs"]) > 1
