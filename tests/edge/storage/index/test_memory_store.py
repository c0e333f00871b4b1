"""What only a memory store does: its limit, and how it gives memory back."""

import asyncio
from collections.abc import Iterator

import pytest

from headwater.edge.kernel.kernel import Kernel
from headwater.edge.storage.format.errors import StoreClosed, StoreFull
from headwater.edge.storage.index.memory import MemoryStore
from headwater.edge.storage.index.store import Usage


class QuietLoop:
    """A loop that never turns: a memory store needs none."""

    def call_soon(self, callback: object, *args: object) -> None:
        pass


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    loop = asyncio.new_event_loop()
    yield MemoryStore(Kernel(loop))
    loop.close()


def test_limit_and_close() -> None:
    usage = Usage()
    usage.limit = 1000
    store = MemoryStore(Kernel(QuietLoop()), usage)
    with pytest.raises(StoreFull):
        for _ in range(100):
            store.add_message(b"abc", b"x" * 81)
    # One message may pass the limit.
    assert (store.messages, usage.bytes) == (11, 1100)
    store.delete(1)
    store.add_message(b"abc", b"x" * 81)
    store.close()
    assert usage.bytes == 0
    with pytest.raises(StoreClosed):
        store.add_message(b"abc", b"")


def test_one_survivor_per_slab_keeps_its_content(store: MemoryStore) -> None:
    for n in range(1, 20001):
        store.add_message(b"s.%d" % (n % 7), b"%d" % n * 3)
    for n in range(1, 20001):
        if n % 100:
            store.delete(n)
    assert store.messages == 200
    for n in range(100, 20001, 100):
        assert store.get(n).payload == b"%d" % n * 3
    store.add_message(b"large", b"y" * 100_000)
    assert store.get(20001).payload == b"y" * 100_000
    assert store.delete(20001)


def test_subject_numbers_are_reused_without_confusing_filters(store: MemoryStore) -> None:
    wild = store.filter((b"k.*",))
    for n in range(70_000):
        store.add_message(b"%s.%d" % (b"k" if n % 2 else b"other", n), b"")
        if n % 1000 == 0:
            store.count_matching(wild, 0)
        if n >= 10:
            store.delete(n - 9)
    assert store.num_subjects == 10
    assert store.count_matching(wild, 0) == 5
