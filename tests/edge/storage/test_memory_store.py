"""The memory store against the model, and how it gives memory back."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import settings
from store_model import StoreMachine

from headwater.edge.broker.core import Kernel
from headwater.edge.storage.errors import StoreClosed, StoreError, StoreFull
from headwater.edge.storage.memory import MemoryStore
from headwater.edge.storage.store import Usage


class QuietLoop:
    """A loop that never turns: a memory store needs none."""

    def call_soon(self, callback: object, *args: object) -> None:
        pass


class MemoryMachine(StoreMachine):
    def make_store(self) -> MemoryStore:
        return MemoryStore(Kernel(QuietLoop()))


TestMemoryStore = MemoryMachine.TestCase
TestMemoryStore.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    loop = asyncio.new_event_loop()
    yield MemoryStore(Kernel(loop))
    loop.close()


def test_fresh_and_after_purge(store: MemoryStore) -> None:
    assert (store.first_seq, store.last_seq) == (1, 0)
    store.add_message(b"a", b"1")
    store.add_message(b"a", b"2")
    assert store.purge() == 2
    assert (store.first_seq, store.last_seq, store.messages, store.bytes) == (3, 2, 0, 0)
    assert store.add_message(b"a", b"3") == 3


def test_timestamps_never_go_back(store: MemoryStore) -> None:
    store.add_message(b"a", b"", timestamp=100)
    store.add_message(b"a", b"", timestamp=50)
    store.add_message(b"a", b"", timestamp=200)
    assert [store.time_of(n) for n in (1, 2, 3)] == [100, 100, 200]
    assert [store.sequence_at_time(t) for t in (0, 100, 101, 200, 201)] == [1, 1, 3, 3, 4]


def test_sequence_must_grow(store: MemoryStore) -> None:
    store.add_message(b"a", b"", sequence=10)
    with pytest.raises(StoreError):
        store.add_message(b"a", b"", sequence=10)
    assert (store.first_seq, store.last_seq) == (10, 10)


def test_limit_and_close() -> None:
    usage = Usage()
    usage.limit = 1000
    store = MemoryStore(Kernel(QuietLoop()), usage)
    with pytest.raises(StoreFull):
        for _ in range(100):
            store.add_message(b"abc", b"x" * 81)
    assert (store.messages, usage.bytes) == (10, 1000)
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
