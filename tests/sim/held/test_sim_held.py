"""A small share of simulated changes of leaders; `make sim-held` runs seeds never seen before."""

import pytest

from tests.sim.held.bugs import BUGS
from tests.sim.held.members import Member
from tests.sim.held.plan import draw
from tests.sim.held.runner import SEARCH, STEPS, STORIES, attempt, explain
from tests.sim.held.story import Story
from tests.sim.jetstream.plan import Step
from tests.sim.planted.bug import Bug
from tests.slow import one_in, slow

KNOWN_SEEDS = (13, 106, 120355, 7300053, 7300457, 7301772, 7301635, 7301470, 5134)
"""They found bugs. A leader to which a route came up again, or a stalled one went on, did not know
that the node at its end held messages, and took them twice (13). A leader that handed over went on
handing out messages, which nobody wrote down, so their acks had no answer (106). A node to which
a leader's messages went, and which led no more, gave them to the next one too late (120355).
A node that had asked to found the cluster, and found it changed, kept its promise of the others, so
that nobody founded one (7300053). Acks that came by a route got no answer where there was no room
for them (7300457). A leader that left took from a node that still held what its clients said
(7301772). Messages that a route delayed until their node led again came behind newer ones
(7301635). A target of a handover that had started anew was asked once more to lead, so late that it
stood when the leader led on already, and ended what that had taken (7301470). What a leader had
handed out before it was replaced came late; somebody else had acknowledged it by then (5134)."""
SAMPLE = ("given-twice", "newest-first")
"""The others: `make sim-held ARGS=--bugs`."""


@pytest.mark.parametrize("seed", one_in(3, KNOWN_SEEDS))
def test_seeds_that_found_bugs(seed: int) -> None:
    outcome = attempt(seed, STEPS)
    assert not isinstance(outcome, str), explain(seed, STEPS, outcome)


def test_who_is_asked_to_leave_before_it_takes_anything_refuses_nobody() -> None:
    """A node that is elected, and told to stop before its stream lives."""
    story = Story(2, 0)
    told: list[Member] = []

    def tell() -> None:
        for member in story.members:
            cluster = member.cluster
            assert cluster is not None and cluster._groups is not None
            (group,) = cluster._groups.groups.values()
            elected = group.raft is not None and group.raft.is_leader
            if elected and not group.machine.lives and not told:
                told.append(member)
                member.loop.call_soon(cluster.hand_over)

    with story.world as world:
        try:
            story._set_up()
            first = story._leader()
            assert first is not None
            world.after.append(tell)
            story._do_handover(Step(0, "handover", 0, 0, 0))
            for _ in range(50):
                story._publish(story.members[0], 1)
                world.sleep(0.006)
            world.sleep(4)
        finally:
            story._end()
    said = story.book.said.values()
    assert told and all(each.sequence for each in said), [each.refused for each in said]


@slow
def test_a_seed_tells_the_same_story_twice() -> None:
    assert STORIES.repeats(7, 15)


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.name in SAMPLE], ids=lambda b: b.name)
def test_planted_bugs_are_found(bug: Bug) -> None:
    assert SEARCH.hunt(bug, 1) is not None


def test_there_are_enough_planted_bugs() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 15
    assert {bug.name for bug in BUGS} >= set(SAMPLE)


def test_runs_see_what_can_happen() -> None:
    """Of the first seeds every setting, fault and work is in some plan."""
    plans = [draw(seed, STEPS) for seed in range(1, 60)]
    assert len({setting for setting, _ in plans}) == 10
    assert len({step.kind for _, steps in plans for step in steps}) == 11


@slow
def test_a_failure_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def handover(story: Story, step: object) -> None:
        story.world.wrong("somebody was asked to leave")

    monkeypatch.setattr(Story, "_do_handover", handover)
    seeds = range(1, 50)
    seed = next(s for s in seeds if any(step.kind == "handover" for step in draw(s, 4)[1]))
    text = explain(seed, 4, "somebody was asked to leave")
    assert f"make sim-held SEED={seed} STEPS=4" in text
    assert "1 of 4 steps are enough" in text
    assert "WRONG somebody was asked to leave" in text
