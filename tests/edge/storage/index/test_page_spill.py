"""Old packed pages lie in mapped files: they hold what they held, and their memory comes back."""

import errno
import gc
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from headwater.edge.ports.nameless import can_map
from headwater.edge.storage.segments.file_store import FileStore
from tests.edge.storage.index.test_packed_pages import PackingMachine
from tests.edge.storage.store_harness import Harness
from tests.measuring import leave_out_what_is_there

pytestmark = pytest.mark.skipif(not can_map(), reason="no such calls on this system")

CHUNK = 256 << 10
TURN = 16


class SpillingMachine(PackingMachine):
    """The contract of a store none of whose packed pages stays on the heap."""

    def packing(self, store: Any) -> Any:
        store.spill.most = 0
        return super().packing(store)


TestSpilling = SpillingMachine.TestCase
TestSpilling.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    leave_out_what_is_there()  # Else each look at a worker of the suite takes seconds.
    made = Harness(tmp_path, segment_bytes=1 << 20)
    made.options.index_memory = 0
    made.options.open_pages = 2
    made.open()
    yield made
    made.end()


def filled(harness: Harness, name: str = "S", count: int = 120_000) -> FileStore:
    """A stream of so many messages, on 3,000 subjects in random order."""
    store = harness.create(name)
    chance = random.Random(1)
    for number in range(count):
        subject = b"s.%d" % chance.randrange(3000)
        store.add_message(subject, b"x" * chance.randrange(20), timestamp=number * 1_000_000)
        if number % TURN == 0:
            harness.breathe()
    harness.commit()
    harness.settle()
    return store


def mapped(folder: Path) -> int:
    """Bytes of files without a name in a folder that this process has in memory."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            inside = str(folder) in line and line.endswith("(deleted)")
        elif inside and line.startswith("Rss:"):
            total += int(line.split()[1]) << 10
    return total


def read_some(store: FileStore, count: int, last: int) -> list[tuple[bytes, bytes]]:
    """Messages from all parts of a stream, up to the last one."""
    chance = random.Random(count)
    wanted = [chance.randrange(1, last + 1) for _ in range(count)]
    return [(found.subject, found.payload) for found in map(store.get, wanted)]


def test_memory_of_old_pages_is_left_to_the_system(harness: Harness) -> None:
    store = filled(harness)
    folder = harness.directory
    assert store.spill.file_bytes() >= CHUNK
    assert store.index_bytes() <= (store.open_count + 1) * 40 * 256 + 24 * 4096
    before = read_some(store, 500, store.last_seq)
    assert mapped(folder) > 0
    store.spill.rest()
    assert mapped(folder) == 0
    assert read_some(store, 500, store.last_seq) == before
    assert not list(harness.node.directory.trash.iterdir())


def spread(harness: Harness, name: str) -> FileStore:
    """A stream whose pages lie in more than one file. How soon they go there depends on when the
    log is written: a busy machine needs more messages."""
    store = filled(harness, name)
    while store.spill.file_bytes() <= CHUNK:
        for number in range(50_000):
            store.add_message(b"more", b"", timestamp=10**15 + number)
            if number % TURN == 0:
                harness.breathe()
        harness.commit()
        harness.settle()
    return store


def test_a_file_goes_with_its_pages(harness: Harness) -> None:
    """By a purge, and with the stream."""
    store = spread(harness, "S")
    spill, folder = store.spill, harness.directory
    store.purge()
    harness.commit()
    assert spill.file_bytes() <= CHUNK
    read_some(other := spread(harness, "T"), 500, 120_000)
    harness.node.delete_stream(other)
    harness.commit()
    del other

    def given_back() -> bool:
        gc.collect()
        return bool(spill.file_bytes() <= CHUNK and spill.kept == 0)

    harness.until(given_back)
    assert mapped(folder) <= CHUNK


def test_pages_stay_where_the_device_has_no_room(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = os.posix_fallocate

    def no_room(file: int, at: int, size: int) -> None:
        """For files without a name, which are those of pages alone."""
        if os.fstat(file).st_nlink == 0:
            raise OSError(errno.ENOSPC, "no room")
        reserve(file, at, size)

    with monkeypatch.context() as changed:
        changed.setattr(os, "posix_fallocate", no_room)
        store = filled(harness, count=30_000)
        assert store.spill.file_bytes() == 0
        stayed = store.spill.kept
    before = read_some(store, 5000, 30_000)
    store.spill.rest()
    for number in range(100_000):
        store.add_message(b"later", b"", timestamp=10**15 + number)
        if number % TURN == 0:
            harness.breathe()
    harness.commit()
    harness.settle()
    assert store.spill.file_bytes() == CHUNK
    assert store.spill.kept < stayed
    assert read_some(store, 5000, 30_000) == before


def test_what_keys_seal_is_in_no_file(tmp_path: Path) -> None:
    made = Harness(tmp_path, sealed=True)
    made.options.index_memory = 0
    made.open()
    try:
        assert made.create().spill is None
    finally:
        made.end()
