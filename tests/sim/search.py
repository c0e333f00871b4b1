"""Seeds, one after the other: runs that must hold, and hunts for planted bugs.

What is simulated is somebody else's: `Search` is told how to attempt one seed, how to explain what
is wrong with it, and how to sum up what was seen.
"""

import argparse
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tests.sim.checks.checker import Violation
from tests.sim.planted.bug import Bug, planted

O = TypeVar("O")  # noqa: E741  # what a run was like


@dataclass(frozen=True)
class Search(Generic[O]):
    """Of one simulation."""

    program: str
    """As `python -m` knows it."""
    attempt: Callable[[int, int], str | O]
    """Run a seed for so many steps: what it was like, or what is wrong."""
    explain: Callable[[int, int, str], str]
    """A failure of a seed, with what is needed to see it again."""
    summary: Callable[[list[O], float], str]
    """Runs that held, and the seconds that they took, in a line."""
    bugs: Mapping[str, Bug]
    steps: int
    """Of one run, when nothing else is asked for."""

    def run(self, seeds: Iterable[int], steps: int, seconds: float = 0.0) -> str:
        """Run seeds until `seconds` have passed (0: all); returns a summary. Raises `Violation`
        with an explanation."""
        begin = time.monotonic()
        outcomes: list[O] = []
        for seed in seeds:
            outcome = self.attempt(seed, steps)
            if isinstance(outcome, str):
                raise Violation(self.explain(seed, steps, outcome))
            outcomes.append(outcome)
            if seconds and time.monotonic() - begin > seconds:
                break
        return self.summary(outcomes, time.monotonic() - begin)

    def hunt(self, bug: Bug, first_seed: int) -> tuple[int, str] | None:
        """Look for a planted bug: how many seeds it took and what was seen; None when unseen."""
        for count in range(bug.seeds):
            with planted(bug):
                outcome = self.attempt(first_seed + count, self.steps)
            if isinstance(outcome, str):
                return count + 1, outcome.splitlines()[0]
        return None

    def hunt_all(self, first_seed: int) -> list[str]:
        """Look for every planted bug; prints as it goes, returns the names of those not found."""
        missing = []
        for name, bug in self.bugs.items():
            found = self.hunt(bug, first_seed)
            if found is None:
                missing.append(name)
            told = f"seed {found[0]} of {bug.seeds}: {found[1]}" if found else "NOT FOUND"
            print(f"{name:26} {told[:110]}", flush=True)
        print(f"{len(self.bugs) - len(missing)} of {len(self.bugs)} found, from seed {first_seed}")
        return missing

    def main(self, about: str | None) -> int:
        """The command: 1 when something was found that should not be, or was not that should."""
        parser = argparse.ArgumentParser(prog=f"python -m {self.program}", description=about)
        parser.add_argument("--seed", type=int, default=0, help="0: a new one")
        parser.add_argument("--runs", type=int, default=1, help="seeds from --seed on")
        parser.add_argument("--steps", type=int, default=self.steps)
        parser.add_argument("--seconds", type=float, default=0.0, help="stop after so long")
        parser.add_argument("--bugs", action="store_true", help="look for the planted bugs instead")
        options = parser.parse_args()
        if options.bugs:
            return 1 if self.hunt_all(options.seed or 1) else 0
        seed = options.seed or secrets.randbelow(1 << 40)
        print(f"seed={seed} steps={options.steps} runs={options.runs}", flush=True)
        try:
            seeds = range(seed, seed + options.runs)
            print(self.run(seeds, options.steps, options.seconds), flush=True)
        except Violation as violation:
            print(violation)
            return 1
        return 0
