"""`make sim-held` and, with `--bugs`, a look for every planted bug."""

import sys

from tests.sim.held.runner import SEARCH

if __name__ == "__main__":
    sys.exit(SEARCH.main(__doc__))
