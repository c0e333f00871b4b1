"""Generated input on both servers, seed after seed; what differs is made small."""

import argparse
import secrets
import sys
import time

from bench.servers import end_on_sigterm
from tests.differ.runs import KINDS, run


def main() -> int:
    """The command; 1 when the servers differ."""
    parser = argparse.ArgumentParser(prog="make differ", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="0: a new one")
    parser.add_argument("--runs", type=int, default=200, help="seeds of each kind, from --seed on")
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--most", type=int, default=1, help="differences to find before it ends")
    options = parser.parse_args()
    end_on_sigterm()
    first = options.seed or secrets.randbelow(1 << 32)
    print(f"seed={first} runs={options.runs}", flush=True)
    failed = 0
    for kind in options.kinds:
        begin = time.monotonic()
        seeds = range(first, first + options.runs)
        found, tried = run(kind, seeds, options.most)
        failed += len(found)
        print(
            f"{kind}: {tried} steps in {time.monotonic() - begin:.0f} s, {len(found)} differ",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
