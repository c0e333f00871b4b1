"""States in the log: the log stays short however often they change and however many there are."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.edge.storage.store_harness import SMALL, Harness

COUNT = struct.Struct("<I")
OWNER = b"consumers"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path)
    made.open()
    yield made
    made.end()


def rest(harness: Harness) -> None:
    """Turn until nothing is written any more."""
    log = harness.node.log
    before = -1
    while log.numbers()["bytes_written"] != before:
        before = log.numbers()["bytes_written"]
        for _ in range(20):
            harness.commit()
        harness.until(lambda: harness.node.checkpointer.step == "idle")


def test_a_state_that_changes_for_ever_keeps_the_log_short(harness: Harness) -> None:
    log = harness.node.log
    acked = 0
    log.put_state(OWNER, b"c", COUNT.pack(0))
    log.encode_with(OWNER, b"c", lambda: COUNT.pack(acked))
    longest = 0
    for acked in range(1, 20_001):
        log.add_delta(OWNER, b"c", COUNT.pack(acked))
        if acked % 200 == 0:
            harness.commit()
            longest = max(longest, len(log.live))
    assert log.numbers()["bytes_written"] > 20 * SMALL
    rest(harness)
    assert longest <= log.keep + 4
    assert len(log.live) <= log.keep + 1
    harness.crash()
    harness.open()
    value, deltas = harness.node.log.states(OWNER)[b"c"]
    assert COUNT.unpack((deltas or [value])[-1]) == (20_000,)
    assert len(deltas) <= (log.keep + 2) * SMALL // 64


@pytest.mark.parametrize("clean", [True, False])
def test_more_states_than_segments_hold_are_at_rest(harness: Harness, clean: bool) -> None:
    log = harness.node.log
    store = harness.create()
    for number in range(1000):
        log.put_state(OWNER, b"%d" % number, b"%d" % number + bytes(400))
        if number % 50 == 0:
            harness.commit()
    before = log.numbers()["bytes_written"]
    for number in range(4000):
        store.add_message(b"a", bytes(1000))
        if number % 20 == 0:
            harness.commit()
            harness.breathe()
    assert log.table.bytes > 14 * SMALL
    rest(harness)
    assert log.numbers()["bytes_written"] - before < 3 * 4000 * 1200
    assert len(log.live) * SMALL < 3 * log.table.bytes + 4 * SMALL
    assert harness.node.checkpointer.done > 10
    (harness.close if clean else harness.crash)()
    (store,) = harness.open()
    assert store.messages == 4000
    assert harness.node.clean_start == clean
    found = {key: value for key, (value, _) in harness.node.log.states(OWNER).items()}
    assert found == {b"%d" % n: b"%d" % n + bytes(400) for n in range(1000)}


@pytest.mark.parametrize("encoded", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_an_addition_in_two_pieces_is_one(
    harness: Harness, encoded: bool, again: bool
) -> None:
    """Whether somebody else keeps the value or the log does, and beside a value whose second copy
    is still to be written, additions included."""
    log = harness.node.log
    log.put_state(OWNER, b"c", b"begin")
    if encoded:
        log.encode_with(OWNER, b"c", lambda: b"begin")
    if not again:
        harness.commit()
    log.add_delta(OWNER, b"c", b"head ", 0, b"and data")
    log.add_delta(OWNER, b"c", b"whole")
    harness.commit()
    harness.crash()
    harness.open()
    value, deltas = harness.node.log.states(OWNER)[b"c"]
    assert value == b"begin"
    assert [delta for at, delta in enumerate(deltas) if delta not in deltas[:at]] == [
        b"head and data",
        b"whole",
    ]


def test_who_waits_for_a_sync_is_released_whatever_another_does(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    log = harness.node.log
    found: list[int] = []

    def fail() -> None:
        raise OSError("no room")

    log.put_state(OWNER, b"c", b"1")
    lsn = log.hand_over()
    log.when_durable(lsn, fail)
    log.when_durable(lsn, lambda: found.append(1))
    harness.commit()
    assert found == [1]
    assert "no room" in caplog.text, "it is told"
