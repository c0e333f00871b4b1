"""Goes through a failed sync and its repair; run by test_failures with failing_sync.c loaded."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4]))

from headwater.edge.storage.format.errors import StoreFailed
from headwater.edge.storage.log import lone_commit
from tests.edge.storage.store_harness import Harness, contents


def main() -> None:
    lone_commit.ALWAYS = sys.argv[2:] == ["loop"]
    harness = Harness(Path(sys.argv[1]))
    switch = Path(os.environ["FAIL_SYNC"])
    harness.open()
    store = harness.create()
    harness.node.restart.retry_delay = 0.02
    for n in range(1, 401):
        store.add_message(b"a", b"%d" % n)
        if n % 100 == 0:
            harness.commit()
    harness.node.log.put_state(b"o", b"before", b"1")
    harness.commit()
    switch.touch()
    for n in range(401, 1001):
        store.add_message(b"a", b"%d" % n * 20)
        if n == 500:
            harness.kernel.turn()
    store.delete(450)
    harness.node.log.put_state(b"o", b"during", b"2")
    harness.turn()
    harness.until(lambda: store.failure is not None)
    assert isinstance(store.failure, StoreFailed)
    assert store.committed == 400
    try:
        store.add_message(b"a", b"refused")
        raise AssertionError("an append during the failure was accepted")
    except StoreFailed:
        pass
    assert store.get(700).payload == b"700" * 20
    harness.until(lambda: harness.node.log.sync_failures >= 3)
    assert store.committed == 400
    switch.unlink()
    harness.until(lambda: store.failure is None)
    assert store.committed == 1000
    store.add_message(b"a", b"after")
    harness.commit()
    harness.settle()
    want = contents(store)
    assert len(want) == 1000
    harness.crash()
    (store,) = harness.open()
    assert harness.node.problems == [], harness.node.problems
    assert contents(store) == want
    states = harness.node.log.states(b"o")
    assert states == {b"before": (b"1", []), b"during": (b"2", [])}
    harness.close()
    (store,) = harness.open()
    assert contents(store) == want
    harness.end()
    print("ok")


main()
