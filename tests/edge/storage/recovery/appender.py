"""Appends for ever and prints what is committed; run by test_recovery and killed there."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4]))

from tests.edge.storage.recovery.test_recovery import append
from tests.edge.storage.store_harness import Harness


def main() -> None:
    harness = Harness(Path(sys.argv[1]))
    harness.open()
    store = harness.create()
    n = reported = 0
    harness.node.log.put_state(b"progress", b"k", b"0")
    while True:
        for _ in range(20):
            n += 1
            append(store, n)
            if n > 2000:
                store.delete(n - 2000)
        harness.node.log.add_delta(b"progress", b"k", b"%d" % n)
        harness.breathe()
        if store.committed > reported:
            reported = store.committed
            print(reported, flush=True)


main()
