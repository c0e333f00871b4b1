"""What a busy log needed of memory goes back when it rests."""

import gc
import subprocess
import sys

import pytest

from headwater.edge.storage.log.log_segment import LogSegment
from headwater.edge.storage.node import spare_memory
from tests.edge.storage.twin_harness import SMALL, TwinHarness

MESSAGE = bytes(1000)
FREED = """
from types import SimpleNamespace
from headwater.edge.storage.log.log_segment import LogSegment

MIB = 1 << 20
SIZE, COUNT = 16 * MIB, 6
SLOT = SimpleNamespace(fd=-1, direct=-1, capacity=SIZE)


def own():
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("RssAnon"))
    return int(line.split()[1]) << 10


def filled(number):
    segment = LogSegment(number, SLOT)
    segment.wipe(0)
    return segment, bytearray(100_000)


# The C library keeps memory for itself from then on, up to this size.
bytearray(24 * MIB)
before = own()
pairs = [filled(number) for number in range(COUNT)]
assert own() - before > COUNT * SIZE * 0.9
small = [piece for _, piece in pairs]
del pairs
print((own() - before) / SIZE)
"""


def segments() -> int:
    """Log segments in memory."""
    gc.collect()
    return sum(isinstance(each, LogSegment) for each in gc.get_objects())


def test_memory_for_the_next_segment_goes_when_the_log_rests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[int] = []
    monkeypatch.setattr(spare_memory, "give_back", lambda: given.append(log.live[-1].number))
    others = segments()
    harness = TwinHarness()
    harness.open()
    store, log = harness.create(), harness.node.log
    pause = spare_memory.QUIET_S / 2
    for _ in range(4):
        for _ in range(3 * SMALL // len(MESSAGE)):
            store.add_message(b"s", MESSAGE)
            harness.commit()
        harness.settle()
        harness.loop.call_later(pause, lambda: None)
        end = harness.loop.time() + pause
        harness.loop.run_until(lambda end=end: harness.loop.time() >= end)
    assert given == [] and segments() - others == len(log.live) + 1
    harness.loop.run_until(lambda: bool(given))
    assert given == [log.live[-1].number] and segments() - others == len(log.live)


def test_memory_of_segments_goes_back_to_the_system() -> None:
    command = [sys.executable, "-c", FREED]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    # A quarter of one of the six.
    assert float(found.stdout) < 0.25
