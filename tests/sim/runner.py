"""Runs seeds, and says what is needed to see a failure again."""

from tests.sim.checks.checker import Violation
from tests.sim.cluster import Cluster, Outcome
from tests.sim.faults import Fault
from tests.sim.planted import (  # noqa: F401  # fill BUGS
    bugs,
    more_bugs,
    other_bugs,
    rule_bugs,
    store_bugs,
)
from tests.sim.planted.bug import BUGS
from tests.sim.search import Search
from tests.sim.shrink import shrink

STEPS = 5000
"""Of one run, when nothing else is asked for."""


def attempt(seed: int, steps: int, plan: list[Fault] | None = None) -> str | Outcome:
    """One run: what it was like, or what is wrong. Whatever is raised is a finding."""
    try:
        return Cluster(seed, steps, plan).run()
    except Violation as violation:
        return str(violation)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def explain(seed: int, steps: int, problem: str) -> str:
    """A failure with its seed, its command and the few faults that it takes."""
    whole = Cluster(seed, steps).plan
    few = shrink(whole, lambda plan: isinstance(attempt(seed, steps, plan), str))
    lines = [
        f"seed={seed} steps={steps}: {problem}",
        f"again: make sim SEED={seed} STEPS={steps}",
        f"{len(few)} of {len(whole)} faults are enough:",
        *(f"  {fault}" for fault in few),
    ]
    return "\n".join(lines)


def summary(outcomes: list[Outcome], passed: float) -> str:
    """What was seen in so many seconds."""
    total = sum(outcome.steps for outcome in outcomes)
    return (
        f"{len(outcomes)} runs, {total} steps, {sum(o.faults for o in outcomes)} faults,"
        f" {sum(o.checks for o in outcomes)} checks,"
        f" {sum(o.judged for o in outcomes)} calls judged,"
        f" {sum(o.simulated_ms for o in outcomes) / 1000:.0f} s simulated in {passed:.1f} s"
        f" ({total / passed:,.0f} steps/s)"
    )


SEARCH = Search("tests.sim", attempt, explain, summary, BUGS, STEPS)
