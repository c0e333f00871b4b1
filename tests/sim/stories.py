"""Stories that follow a plan: one run of a seed, and what is needed to see a failure again."""

import gc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tests.sim.checks.checker import Violation
from tests.sim.jetstream.plan import Step
from tests.sim.planted.bug import Bug
from tests.sim.search import Search
from tests.sim.shrink import shrink

O = TypeVar("O")  # noqa: E741  # what a run was like
O_co = TypeVar("O_co", covariant=True)  # the same of a story

SHOWN = 60
"""Lines of the transcript that a failure shows."""


class Planned(Protocol[O_co]):
    """A story. Its world keeps a transcript, whose first line is the setting."""

    world: Any

    def run(self) -> O_co:
        """Tell it. Raises `Violation`."""


@dataclass(frozen=True)
class Stories(Generic[O]):
    """Of one simulation."""

    command: str
    """The target of `make`."""
    tell: Callable[[int, int, list[Step] | None], Planned[O]]
    """The story of a seed in so many steps, or by a plan in their place."""
    draw: Callable[[int, int], tuple[Any, list[Step]]]
    """Setting and plan of a seed."""

    def attempt(self, seed: int, steps: int, plan: list[Step] | None = None) -> str | O:
        """One run: what it was like, or what is wrong. Whatever is raised is a finding."""
        return told(self.tell(seed, steps, plan))

    def explain(self, seed: int, steps: int, problem: str) -> str:
        """A failure with its seed, its command, the few steps that it takes, and what happens
        then."""
        _, whole = self.draw(seed, steps)
        few = shrink(whole, lambda plan: isinstance(self.attempt(seed, steps, plan), str))
        story = self.tell(seed, steps, few)
        found = told(story)
        lines = [
            f"seed={seed} steps={steps}: {problem}",
            f"again: make {self.command} SEED={seed} STEPS={steps}",
            f"{len(few)} of {len(whole)} steps are enough:",
            *(f"  {step}" for step in few),
            f"with these: {found if isinstance(found, str) else 'nothing is wrong'}",
            *story.world.trace[:1],
            *story.world.trace[1:][-SHOWN:],
        ]
        return "\n".join(lines)

    def search(self, bugs: Iterable[Bug], steps: int, counts: Mapping[str, str]) -> Search[O]:
        """Seeds of so many steps each; `counts` are fields of an outcome, with words for them."""

        def summary(outcomes: list[O], passed: float) -> str:
            return summed(outcomes, counts, passed)

        program = f"tests.sim.{self.command.removeprefix('sim-')}"
        by_name = {bug.name: bug for bug in bugs}
        return Search(program, self.attempt, self.explain, summary, by_name, steps)

    def repeats(self, seed: int, steps: int) -> bool:
        """Whether a seed tells the same story twice, and the next one another."""
        first, second, other = (self.attempt(one, steps) for one in (seed, seed, seed + 1))
        assert not any(isinstance(each, str) for each in (first, second, other))
        return first == second and first.trace != other.trace  # type: ignore[union-attr]


def told(story: Planned[O]) -> str | O:
    """A run of a story that somebody may want to look at afterwards."""
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


def summed(outcomes: list[Any], counts: Mapping[str, str], passed: float) -> str:
    """What was seen in so many seconds; `counts` are fields of an outcome, with words for them."""
    sums = [
        f"{sum(getattr(o, field) for o in outcomes)} {words}, " for field, words in counts.items()
    ]
    return (
        f"{len(outcomes)} runs, {''.join(sums)}"
        f"{sum(o.simulated_s for o in outcomes):.0f} s simulated in {passed:.1f} s"
    )
