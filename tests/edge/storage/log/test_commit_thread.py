"""The commit thread goes on while the event loop never lets go of the interpreter."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.edge.storage.format.crc import checksum, checksum_parts
from tests.edge.storage.store_harness import Harness


@pytest.fixture
def no_switching() -> Iterator[None]:
    """No thread is asked to give up the GIL."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    yield
    sys.setswitchinterval(before)


def test_it_writes_and_syncs_without_the_gil(tmp_path: Path, no_switching: None) -> None:
    harness = Harness(tmp_path)
    harness.open()
    assert harness.node is not None
    try:
        store = harness.create()
        harness.commit()
        numbers = harness.node.log.numbers
        # Each batch goes out while the one before it is being written.
        for _ in range(5):
            before = numbers()["syncs"]
            store.add_message(b"a", b"x" * 1000)
            harness.node.log.hand_over()
            end = time.monotonic() + 20
            # Nothing in here waits, so nothing lets another thread have the GIL.
            while numbers()["syncs"] == before:
                assert time.monotonic() < end, "the commit thread waits for the GIL"
    finally:
        harness.end()


def test_the_checksum_of_parts_is_that_of_the_whole() -> None:
    parts = [b"ab", bytearray(b"cde"), memoryview(b"fgh" * 100), b""]
    assert checksum_parts(list(parts), 7) == checksum(b"".join(parts), 7)
