"""The simulation over real stores, with seeds never seen before."""

import secrets

import pytest

from tests.sim.cluster import Cluster
from tests.sim.runner import STEPS, attempt, explain, run_seeds
from tests.sim.store_node import StoreNode

KNOWN_SEEDS = (49, 70, 77, 111, 150)
"""These found bugs when the product was young."""


def test_new_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    seed = secrets.randbelow(1 << 40)
    with capsys.disabled():
        print(f"\nsimulation over stores: seed={seed} steps={STEPS}")
        print(run_seeds(range(seed, seed + 1000), STEPS, 10, "file"))


@pytest.mark.parametrize("seed", KNOWN_SEEDS)
def test_seeds_that_found_bugs(seed: int) -> None:
    outcome = attempt(seed, STEPS, None, "file")
    assert not isinstance(outcome, str), explain(seed, STEPS, outcome, "file")


def test_a_seed_tells_the_same_story_twice() -> None:
    first = Cluster(7, 3000, make=StoreNode).run()
    second = Cluster(7, 3000, make=StoreNode).run()
    assert first == second
