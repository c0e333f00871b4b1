"""Runs seeds of the simulated JetStream, and says what is needed to see a failure again."""

from tests.sim.jetstream.bugs import BUGS
from tests.sim.jetstream.plan import draw
from tests.sim.jetstream.story import Outcome, Story
from tests.sim.search import Search
from tests.sim.stories import Stories, summed

STEPS = 120
"""Of one run, when nothing else is asked for."""

COUNTS = {
    "steps": "steps",
    "published": "messages",
    "deliveries": "deliveries",
    "starts": "starts",
    "checks": "looks at whole streams",
}
"""What is summed up of all runs."""

STORIES: Stories[Outcome] = Stories("sim-jetstream", Story, draw)
attempt, explain = STORIES.attempt, STORIES.explain


def summary(outcomes: list[Outcome], passed: float) -> str:
    """What was seen in so many seconds."""
    return summed(outcomes, COUNTS, passed)


SEARCH = Search(
    "tests.sim.jetstream",
    attempt,
    explain,
    summary,
    {bug.name: bug for bug in BUGS},
    STEPS,
)
