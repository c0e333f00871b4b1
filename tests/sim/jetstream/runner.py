"""Runs seeds of the simulated JetStream, and says what is needed to see a failure again."""

from tests.sim.jetstream.bugs import BUGS
from tests.sim.jetstream.plan import draw
from tests.sim.jetstream.story import Outcome, Story
from tests.sim.stories import Stories

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
SEARCH = STORIES.search(BUGS, STEPS, COUNTS)
