"""Runs seeds, and says what is needed to see a failure again."""

import time
from collections.abc import Iterable

from tests.sim import bugs, more_bugs, other_bugs, rule_bugs, store_bugs  # noqa: F401  # fill BUGS
from tests.sim.bug import BUGS, planted
from tests.sim.checker import Violation
from tests.sim.cluster import Cluster, Outcome
from tests.sim.faults import Fault
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


def run_seeds(seeds: Iterable[int], steps: int, seconds: float = 0.0) -> str:
    """Run seeds until `seconds` have passed (0: all). Raises `Violation` with an explanation;
    returns a summary."""
    begin = time.monotonic()
    outcomes: list[Outcome] = []
    for seed in seeds:
        outcome = attempt(seed, steps)
        if isinstance(outcome, str):
            raise Violation(explain(seed, steps, outcome))
        outcomes.append(outcome)
        if seconds and time.monotonic() - begin > seconds:
            break
    passed = time.monotonic() - begin
    total = sum(outcome.steps for outcome in outcomes)
    return (
        f"{len(outcomes)} runs, {total} steps, {sum(o.faults for o in outcomes)} faults,"
        f" {sum(o.checks for o in outcomes)} checks,"
        f" {sum(o.judged for o in outcomes)} calls judged,"
        f" {sum(o.simulated_ms for o in outcomes) / 1000:.0f} s simulated in {passed:.1f} s"
        f" ({total / passed:,.0f} steps/s)"
    )


def hunt(name: str, first_seed: int, seeds_max: int, steps: int = STEPS) -> tuple[int, str] | None:
    """Look for a planted bug: how many seeds it took and what was seen; None when unseen."""
    for count in range(seeds_max):
        with planted(name):
            outcome = attempt(first_seed + count, steps)
        if isinstance(outcome, str):
            return count + 1, outcome.splitlines()[0]
    return None


def hunt_all(first_seed: int) -> list[str]:
    """Look for every planted bug; prints as it goes and returns the names of those not found."""
    missing = []
    for name, bug in BUGS.items():
        found = hunt(name, first_seed, bug.seeds)
        if found is None:
            missing.append(name)
        told = f"seed {found[0]} of {bug.seeds}: {found[1]}" if found else "NOT FOUND"
        print(f"{name:26} {told[:110]}", flush=True)
    print(f"{len(BUGS) - len(missing)} of {len(BUGS)} found, from seed {first_seed}")
    return missing
