"""Runs seeds of the simulated links, and says what is needed to see a failure again."""

from tests.sim.links.bugs import BUGS
from tests.sim.links.plan import draw
from tests.sim.links.story import Outcome, Story
from tests.sim.stories import Stories

STEPS = 100
"""Of one run, when nothing else is asked for."""

COUNTS = {
    "steps": "steps",
    "sent": "messages",
    "makings": "makings of origins",
    "starts": "starts",
    "checks": "looks at whole copies",
}
"""What is summed up of all runs."""

STORIES: Stories[Outcome] = Stories("sim-links", Story, draw)
attempt, explain = STORIES.attempt, STORIES.explain
SEARCH = STORIES.search(BUGS, STEPS, COUNTS)
