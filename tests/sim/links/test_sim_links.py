"""A small share of the simulated links in every test run, with seeds never seen before."""

import secrets

import pytest

from tests.sim.checks.checker import Violation
from tests.sim.links.bugs import BUGS
from tests.sim.links.plan import COMPRESSIONS, FILTERS, draw
from tests.sim.links.runner import SEARCH, STEPS, STORIES, attempt, explain
from tests.sim.links.story import Outcome, Story
from tests.slow import one_in, shared, slow

SAMPLE = (
    "mirror-skips-one", "another-unnoticed", "source-forgets-its-end", "unknown-is-zero",
    "silence-not-noticed", "dialled-once",
)  # fmt: skip
"""The others: `make sim-links ARGS=--bugs`."""


@pytest.mark.fresh
def test_new_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    seed = secrets.randbelow(1 << 40)
    with capsys.disabled():
        try:
            print(f"\nseed={seed}:", SEARCH.run(range(seed, seed + 1000), STEPS, seconds=8))
        except Violation as violation:
            pytest.fail(str(violation), pytrace=False)


@pytest.mark.parametrize("seed", one_in(3, [12, 13, 113, 268, 514537040375]))
def test_known_seeds(seed: int) -> None:
    """They found flaws of the checks; the last, a copy that had everything and was stalled."""
    assert isinstance(attempt(seed, STEPS), Outcome)


@slow
def test_a_seed_tells_the_same_story_twice() -> None:
    assert STORIES.repeats(7, 20)


@pytest.mark.parametrize("name", shared(SAMPLE, lambda name: name != "another-unnoticed"))
def test_planted_bugs_are_found(name: str) -> None:
    (bug,) = (bug for bug in BUGS if bug.name == name)
    assert SEARCH.hunt(bug, 1) is not None


def test_there_are_enough_planted_bugs() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 15
    assert {bug.name for bug in BUGS} >= set(SAMPLE)


def test_runs_see_what_can_happen() -> None:
    """Of the first seeds every setting, fault and work is in some plan."""
    plans = [draw(seed, STEPS) for seed in range(1, 40)]
    assert {setting.compression for setting, _ in plans} == set(COMPRESSIONS)
    assert {setting.filter for setting, _ in plans} == set(FILTERS)
    assert len({setting.origin_dials for setting, _ in plans}) == 2
    assert len({step.kind for _, steps in plans for step in steps}) == 17


@slow
def test_a_failure_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def delete(story: Story, step: object) -> None:
        story.world.wrong("something was deleted")

    monkeypatch.setattr(Story, "_do_delete", delete)
    seed = next(s for s in range(1, 50) if any(step.kind == "delete" for step in draw(s, 4)[1]))
    text = explain(seed, 4, "something was deleted")
    assert f"make sim-links SEED={seed} STEPS=4" in text
    assert "1 of 4 steps are enough" in text
    assert "WRONG something was deleted" in text
