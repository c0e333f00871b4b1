"""Runs seeds of simulated changes of leaders, and says what is needed to see a failure again."""

import gc

from tests.sim.checks.checker import Violation
from tests.sim.held.bugs import BUGS
from tests.sim.held.plan import draw
from tests.sim.held.story import Outcome, Story
from tests.sim.jetstream.plan import Step
from tests.sim.search import Search
from tests.sim.shrink import shrink

STEPS = 60
"""Of one run, when nothing else is asked for."""
SHOWN = 60
"""Lines of the transcript that a failure shows."""


def attempt(seed: int, steps: int, plan: list[Step] | None = None) -> str | Outcome:
    """One run: what it was like, or what is wrong. Whatever is raised is a finding."""
    return told(Story(seed, steps, plan))


def told(story: Story) -> str | Outcome:
    """`attempt` for a story that somebody wants to look at afterwards."""
    # What a dead node leaves behind is cleared away at once, not in the midst of a later run.
    gc.collect()
    gc.disable()
    try:
        return story.run()
    except Violation as violation:
        return str(violation)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        gc.enable()


def explain(seed: int, steps: int, problem: str) -> str:
    """A failure with its seed, its command, the few steps that it takes, and what happens then."""
    _, whole = draw(seed, steps)
    few = shrink(whole, lambda plan: isinstance(attempt(seed, steps, plan), str))
    story = Story(seed, steps, few)
    found = told(story)
    lines = [
        f"seed={seed} steps={steps}: {problem}",
        f"again: make sim-held SEED={seed} STEPS={steps}",
        f"{len(few)} of {len(whole)} steps are enough:",
        *(f"  {step}" for step in few),
        f"with these: {found if isinstance(found, str) else 'nothing is wrong'}",
        *story.world.trace[:1],
        *story.world.trace[1:][-SHOWN:],
    ]
    return "\n".join(lines)


def summary(outcomes: list[Outcome], passed: float) -> str:
    """What was seen in so many seconds."""
    return (
        f"{len(outcomes)} runs, {sum(o.steps for o in outcomes)} steps,"
        f" {sum(o.published for o in outcomes)} messages,"
        f" {sum(o.held for o in outcomes)} said while nobody led,"
        f" {sum(o.changes for o in outcomes)} faults,"
        f" {sum(o.checks for o in outcomes)} looks,"
        f" {sum(o.simulated_s for o in outcomes):.0f} s simulated in {passed:.1f} s"
    )


SEARCH = Search("tests.sim.held", attempt, explain, summary, {bug.name: bug for bug in BUGS}, STEPS)
