"""`make sim-jetstream` and, with `--bugs`, a look for every planted bug."""

import argparse
import secrets
import sys

from tests.sim.jetstream.runner import STEPS, hunt_all, run_seeds
from tests.sim.jetstream.world import Violation


def main() -> int:
    """Exit status 1 when something was found that should not be, or was not that should."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.jetstream", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="0: a new one")
    parser.add_argument("--runs", type=int, default=1, help="seeds from --seed on")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after so long")
    parser.add_argument("--bugs", action="store_true", help="look for the planted bugs instead")
    options = parser.parse_args()
    if options.bugs:
        return 1 if hunt_all(options.seed or 1) else 0
    seed = options.seed or secrets.randbelow(1 << 40)
    print(f"seed={seed} steps={options.steps} runs={options.runs}", flush=True)
    try:
        seeds = range(seed, seed + options.runs)
        print(run_seeds(seeds, options.steps, options.seconds), flush=True)
    except Violation as violation:
        print(violation)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
