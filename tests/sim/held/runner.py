"""Runs seeds of simulated changes of leaders, and says what is needed to see a failure again."""

from tests.sim.held.bugs import BUGS
from tests.sim.held.plan import draw
from tests.sim.held.story import Outcome, Story
from tests.sim.stories import Stories

STEPS = 60
"""Of one run, when nothing else is asked for."""

COUNTS = {
    "steps": "steps",
    "published": "messages",
    "held": "said while nobody led",
    "changes": "faults",
    "checks": "looks",
}
"""What is summed up of all runs."""

STORIES: Stories[Outcome] = Stories("sim-held", Story, draw)
attempt, explain = STORIES.attempt, STORIES.explain
SEARCH = STORIES.search(BUGS, STEPS, COUNTS)
