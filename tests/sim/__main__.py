"""`make sim` and `make sim-bugs`."""

import sys

from tests.sim.runner import SEARCH

if __name__ == "__main__":
    sys.exit(SEARCH.main(__doc__))
