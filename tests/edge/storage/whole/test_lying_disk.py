"""A disk that says "synced" and is not: what a power cut leaves is right, what is gone is told."""

import pytest

from tests.edge.storage.twin_harness import TwinHarness, contents


@pytest.mark.parametrize("seed", range(8))
def test_what_is_left_after_a_lying_flush_is_right(seed: int) -> None:
    harness = TwinHarness(seed=seed)
    harness.open()
    store = harness.create()
    rows = {}
    for n in range(1, 61):
        payload = b"%d," % n * 9
        rows[store.add_message(b"a", payload)] = payload
        if n % 5 == 0:
            harness.commit()
    harness.settle()
    harness.disk.sync_all()
    harness.disk.lying = True
    for n in range(61, 121):
        payload = b"%d," % n * 9
        rows[store.add_message(b"a", payload)] = payload
        if n % 5 == 0:
            harness.commit()
    assert store.committed == 120
    harness.power_cut(seed)
    harness.disk.lying = False
    store = harness.open()[store.incarnation]
    found = {sequence: row[2] for sequence, row in contents(store).items()}
    assert found == {sequence: rows[sequence] for sequence in found}
    last = store.last_seq
    gone = set(range(1, min(last, 120) + 1)) - set(found) - set(store.lost)
    assert not gone or harness.node.problems, sorted(gone)
    assert store.add_message(b"a", b"on") == last + 1
    harness.commit()
    harness.close()
