"""Worlds of accounts and users on both servers, seed after seed; what differs is made small."""

import argparse
import secrets
import sys

from bench.servers import end_on_sigterm
from tests.edge.broker.authorize.compared import decided, differences, shrunk, told
from tests.edge.broker.authorize.worlds import make

MODES = ("conf", "jwt")


def main() -> int:
    """The command; 1 when servers decide differently."""
    parser = argparse.ArgumentParser(prog="make decisions", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="0: a new one")
    parser.add_argument("--runs", type=int, default=20, help="seeds from --seed on")
    options = parser.parse_args()
    end_on_sigterm()
    first = options.seed or secrets.randbelow(1 << 32)
    print(f"seed={first} runs={options.runs}", flush=True)
    tried = 0
    for seed in range(first, first + options.runs):
        for mode in MODES:
            world = make(seed, mode)
            found = differences(world)
            if found:
                world = shrunk(world, differences)
                print(told(seed, world, differences(world)))
                return 1
            tried += decided(world)
    print(f"{tried} decisions on {options.runs * len(MODES)} worlds are those of nats-server")
    return 0


if __name__ == "__main__":
    sys.exit(main())
