"""Runs seeds of the simulated JetStream, and says what is needed to see a failure again."""

import contextlib
import gc
import time
from collections.abc import Iterable, Iterator

from tests.sim.bug import Bug
from tests.sim.jetstream.bugs import BUGS
from tests.sim.jetstream.plan import Step, draw
from tests.sim.jetstream.story import Outcome, Story
from tests.sim.jetstream.world import Violation
from tests.sim.shrink import shrink

STEPS = 120
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
        f"again: make sim-jetstream SEED={seed} STEPS={steps}",
        f"{len(few)} of {len(whole)} steps are enough:",
        *(f"  {step}" for step in few),
        f"with these: {found if isinstance(found, str) else 'nothing is wrong'}",
        *story.world.trace[:1],
        *story.world.trace[1:][-SHOWN:],
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
    return (
        f"{len(outcomes)} runs, {sum(o.steps for o in outcomes)} steps,"
        f" {sum(o.published for o in outcomes)} messages,"
        f" {sum(o.deliveries for o in outcomes)} deliveries,"
        f" {sum(o.starts for o in outcomes)} starts,"
        f" {sum(o.checks for o in outcomes)} looks at whole streams,"
        f" {sum(o.simulated_s for o in outcomes):.0f} s simulated in {passed:.1f} s"
    )


@contextlib.contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """The product with one bug."""
    saved = [(owner, name, getattr(owner, name)) for owner, name, _ in bug.patches]
    try:
        for (owner, name, original), patch in zip(saved, bug.patches, strict=True):
            setattr(owner, name, patch[2](original))
        yield
    finally:
        for owner, name, original in saved:
            setattr(owner, name, original)


def hunt(bug: Bug, first_seed: int, steps: int = STEPS) -> tuple[int, str] | None:
    """Look for a planted bug: how many seeds it took and what was seen; None when unseen."""
    for count in range(bug.seeds):
        with planted(bug):
            outcome = attempt(first_seed + count, steps)
        if isinstance(outcome, str):
            return count + 1, outcome.splitlines()[0]
    return None


def hunt_all(first_seed: int) -> list[str]:
    """Look for every planted bug; prints as it goes and returns the names of those not found."""
    missing = []
    for bug in BUGS:
        found = hunt(bug, first_seed)
        if found is None:
            missing.append(bug.name)
        text = f"seed {found[0]} of {bug.seeds}: {found[1]}" if found else "NOT FOUND"
        print(f"{bug.name:26} {text[:110]}", flush=True)
    print(f"{len(BUGS) - len(missing)} of {len(BUGS)} found, from seed {first_seed}")
    return missing
