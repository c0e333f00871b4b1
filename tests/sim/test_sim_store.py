"""The simulation over real stores, with seeds never seen before."""

import secrets

import pytest

from tests.sim.bug import Bug
from tests.sim.cluster import Cluster
from tests.sim.runner import STEPS, attempt, explain, run_seeds
from tests.sim.store_bugs import STORE_BUGS
from tests.sim.store_node import StoreNode

KNOWN_SEEDS = (11, 49, 70, 77, 111, 150, 9006, 800002, 810114, 820003, 820115)
"""These found bugs when the product was young."""


def test_new_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    seed = secrets.randbelow(1 << 40)
    with capsys.disabled():
        print(f"\nsimulation over stores: seed={seed} steps={STEPS}")
        print(run_seeds(range(seed, seed + 1000), STEPS, 8, "file"))


@pytest.mark.parametrize("seed", KNOWN_SEEDS)
def test_seeds_that_found_bugs(seed: int) -> None:
    outcome = attempt(seed, STEPS, None, "file")
    assert not isinstance(outcome, str), explain(seed, STEPS, outcome, "file")


def test_a_seed_tells_the_same_story_twice() -> None:
    first = Cluster(7, 3000, make=StoreNode).run()
    second = Cluster(7, 3000, make=StoreNode).run()
    assert first == second


@pytest.mark.parametrize("bug", STORE_BUGS, ids=lambda bug: bug.name)
def test_planted_bugs_are_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name, make in bug.patches:
        monkeypatch.setattr(owner, name, make(getattr(owner, name)))
    seeds = range(1, 1 + bug.seeds)
    assert any(isinstance(attempt(seed, STEPS, None, "file"), str) for seed in seeds)
