"""Groups that have lost what was committed, and a member that has it: stories from seeds."""

import pytest

from tests.hub.raft.history_story import HISTORY_BUGS, HistoryStory
from tests.sim.planted.bug import Bug, planted

SEEDS = 60


def test_no_entry_counts_that_a_member_has_otherwise() -> None:
    stopped = 0
    for seed in range(SEEDS):
        story = HistoryStory(seed)
        story.run()
        stopped += bool(story.stopped)
    assert stopped > SEEDS // 4, "the stories tell of no contradictions"


@pytest.mark.parametrize("bug", HISTORY_BUGS, ids=lambda bug: bug.name)
def test_planted_bugs_are_found(bug: Bug) -> None:
    with planted(bug):
        for seed in range(bug.seeds):
            try:
                HistoryStory(seed).run()
            except AssertionError:
                return
    pytest.fail(f"not found within {bug.seeds} seeds: {bug.what}")
