"""A log file that is lost after a clean stop takes no consumer, and nothing else's state, along."""

import pytest

from tests.edge.storage.twin_harness import TwinHarness

STATES = 40
MESSAGES = 900


def stopped_cleanly() -> tuple[TwinHarness, bytes]:
    harness = TwinHarness()
    harness.open()
    store = harness.create()
    owner = store.incarnation.encode()
    for number in range(STATES):
        harness.node.log.put_state(owner, b"consumer/%d" % number, b"value %d" % number)
    for number in range(MESSAGES):
        store.add_message(b"s", b"message %d" % number)
    harness.settle()
    harness.node.log.add_delta(owner, b"consumer/7", b"more")
    harness.settle()
    harness.close()
    return harness, owner


@pytest.mark.parametrize("size", [0, 100, 3000])
def test_each_of_them_can_be_cut_short(size: int) -> None:
    harness, owner = stopped_cleanly()
    slots = [parts for parts, _ in harness.disk.walk() if "log" in parts]
    assert len(slots) >= 2
    for parts in slots:
        after = TwinHarness(harness.disk.copy())
        del after.disk.file(parts).content[size:]
        (found,) = after.open().values()
        states = after.node.log.states(owner)
        assert {key for key in states if key.startswith(b"consumer/")} == {
            b"consumer/%d" % number for number in range(STATES)
        }
        assert states[b"consumer/7"] == (b"value 7", [b"more"])
        assert found.messages == MESSAGES
        found.add_message(b"s", b"one more")
        after.commit()
        after.close()
