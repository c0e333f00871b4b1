"""The one contract of every store: in memory, in files, sealed, compressed, and both.

Random operations are compared with a simple model, through restarts where there are files; a few
named cases follow. What one kind alone does is tested beside it.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import rule

from headwater.edge.kernel.kernel import Kernel
from headwater.edge.storage.format.errors import StoreClosed, StoreError
from headwater.edge.storage.index.memory import MemoryStore
from tests.edge.storage.index.store_model import HEADERS, StoreMachine
from tests.edge.storage.store_harness import Harness

FILE_KINDS = {
    "file": (False, False),
    "sealed": (True, False),
    "compressed": (False, True),
    "sealed and compressed": (True, True),
}
FEW = settings(max_examples=20, stateful_step_count=25, deadline=None)


class QuietLoop:
    """A loop that never turns: a memory store needs none."""

    def call_soon(self, callback: object, *args: object) -> None:
        pass


class MemoryMachine(StoreMachine):
    def make_store(self) -> MemoryStore:
        return MemoryStore(Kernel(QuietLoop()))


class FileMachine(StoreMachine):
    """Adds turns, commits, crashes and clean restarts."""

    sealed = False
    compressed = False
    gathered = False

    def make_store(self) -> object:
        self.path = Path(tempfile.mkdtemp(prefix="headwater-test-"))
        self.harness = Harness(
            self.path, sealed=self.sealed, compressed=self.compressed, gathered=self.gathered
        )
        self.harness.open()
        return self.harness.create()

    def settle_store(self) -> None:
        self.harness.breathe()

    def size_of(self, row: tuple[bytes, bytes, bytes]) -> int:
        return sum(map(len, row)) + 30 + (4 if row[1] else 0)

    def reopen(self) -> None:
        self.filters = []
        (self.store,) = self.harness.open()
        assert self.harness.node.problems == []
        self.check_everything()

    @rule()
    def restart(self) -> None:
        self.harness.close()
        self.reopen()

    @rule()
    def crash(self) -> None:
        self.harness.crash()
        self.reopen()

    @rule()
    def commit(self) -> None:
        self.harness.commit()
        assert self.store.committed == self.store.last_seq
        self.harness.settle()

    def teardown(self) -> None:
        try:
            self.check_everything()
        finally:
            self.harness.end()
            shutil.rmtree(self.path)


class SealedMachine(FileMachine):
    sealed = True


class GatheredMachine(FileMachine):
    gathered = True


class CompressedMachine(FileMachine):
    compressed = True


class SealedCompressedMachine(FileMachine):
    sealed = True
    compressed = True


TestMemory = MemoryMachine.TestCase
TestMemory.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestFile = FileMachine.TestCase
TestFile.settings = FEW
TestGathered = GatheredMachine.TestCase
TestGathered.settings = FEW
TestSealed = SealedMachine.TestCase
TestSealed.settings = FEW
TestCompressed = CompressedMachine.TestCase
TestCompressed.settings = FEW
TestSealedCompressed = SealedCompressedMachine.TestCase
TestSealedCompressed.settings = FEW


@pytest.fixture(params=["memory", *FILE_KINDS])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield MemoryStore(Kernel(QuietLoop()))
        return
    sealed, compressed = FILE_KINDS[request.param]
    harness = Harness(tmp_path, sealed=sealed, compressed=compressed)
    harness.open()
    yield harness.create()
    harness.end()


def test_fresh_and_after_purge(store: Any) -> None:
    assert (store.first_seq, store.last_seq) == (1, 0)
    store.add_message(b"a", b"1")
    store.add_message(b"a", b"2")
    assert store.purge() == 2
    assert (store.first_seq, store.last_seq, store.messages, store.bytes) == (3, 2, 0, 0)
    assert store.add_message(b"a", b"3") == 3


def test_timestamps_never_go_back(store: Any) -> None:
    store.add_message(b"a", b"", timestamp=100)
    store.add_message(b"a", b"", timestamp=50)
    store.add_message(b"a", b"", timestamp=200)
    assert [store.time_of(n) for n in (1, 2, 3)] == [100, 100, 200]
    assert [store.sequence_at_time(t) for t in (0, 100, 101, 200, 201)] == [1, 1, 3, 3, 4]


def test_sequence_must_grow(store: Any) -> None:
    store.add_message(b"a", b"", sequence=10)
    with pytest.raises(StoreError):
        store.add_message(b"a", b"", sequence=10)
    assert (store.first_seq, store.last_seq) == (10, 10)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 1000, 70_000, 300_000])
def test_any_size_comes_back(store: Any, size: int) -> None:
    payload = (b"0123456789" * (size // 10 + 1))[:size]
    store.add_message(b"a.b", payload, HEADERS)
    store.add_message(b"a", payload)
    got, other = store.get(1), store.get(2)
    assert (got.subject, got.headers, got.payload) == (b"a.b", HEADERS, payload)
    assert (other.subject, other.headers, other.payload) == (b"a", b"", payload)
    assert store.get(3) is None


def test_closed_stores_take_nothing(store: Any) -> None:
    store.add_message(b"a", b"1")
    store.close()
    with pytest.raises(StoreClosed):
        store.add_message(b"a", b"2")
