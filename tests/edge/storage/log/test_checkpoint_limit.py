"""A log that is as far behind as it may be still checkpoints its segments."""

import pytest

from headwater.edge.storage.format.errors import StoreFull
from tests.edge.storage.twin_harness import TwinHarness

VALUE = b"v" * 900


def test_checkpoints_go_on_where_every_other_record_is_refused() -> None:
    harness = TwinHarness()
    harness.open()
    store = harness.create()
    log = harness.node.log
    # In the oldest segment, and put again when that is checkpointed.
    log.put_state(b"o", b"kept", VALUE)
    harness.commit()
    with pytest.raises(StoreFull):
        # Nothing is checkpointed meanwhile, as the loop does not run.
        for _ in range(1000):
            log.put_state(b"o", b"changed", VALUE)
            log.hand_over()
    waiting = len(log.live)
    harness.settle()
    assert len(log.live) < waiting / 2
    assert log.states(b"o") == {b"kept": (VALUE, []), b"changed": (VALUE, [])}
    assert store.add_message(b"s", b"m") == 1
    harness.commit()
