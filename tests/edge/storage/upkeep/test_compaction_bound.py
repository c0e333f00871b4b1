"""However messages are deleted, the files of a stream stay within the bound of docs/STORAGE.md."""

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.edge.storage.store_harness import SMALL, Harness, contents, segment_bytes

RECORD = 64
FACTOR = 3
PER_MESSAGE = 64
CONSTANT = 3 * SMALL + 4096


def live_bytes(store: Any) -> int:
    """What the records of all stored messages take."""
    overhead = 30 * store.messages
    return store.bytes - overhead + (RECORD + 7) * store.messages


def check(harness: Harness, store: Any) -> None:
    harness.commit()
    harness.settle()
    harness.until(lambda: not store.leaving)
    harness.until(lambda: segment_bytes(store) == sum(segment.end for segment in store.segments))
    bound = FACTOR * live_bytes(store) + PER_MESSAGE * store.messages + CONSTANT
    assert segment_bytes(store) <= bound
    assert len(list(store.directory.glob("*.seg"))) <= 4 + 4 * segment_bytes(store) // SMALL
    indexes = sum(path.stat().st_size for path in store.directory.glob("*.idx"))
    assert indexes <= bound


def run(delete: Callable[[Any, random.Random], None], rounds: int, seed: int = 1) -> None:
    """Rounds of publishing and of deleting by `delete`, then a crash and a clean stop."""
    path = Path(tempfile.mkdtemp(prefix="headwater-test-"))
    harness = Harness(path)
    chance = random.Random(seed)
    try:
        harness.open()
        store = harness.create()
        for _ in range(rounds):
            for n in range(600):
                store.add_message(b"s.%d" % (n % 50), b"x" * chance.randrange(10, 200))
                if n % 50 == 49:
                    harness.breathe()
            delete(store, chance)
            check(harness, store)
        want = contents(store)
        for restart in (harness.crash, harness.close):
            restart()
            (store,) = harness.open()
            assert harness.node.problems == []
            assert store.lost == {}
            assert contents(store) == want
            check(harness, store)
    finally:
        harness.end()
        shutil.rmtree(path)


def all_but(step: int) -> Callable[[Any, random.Random], None]:
    """Every `step`-th message is kept for ever."""

    def delete(store: Any, chance: random.Random) -> None:
        for sequence in range(max(store.last_seq - 599, 1), store.last_seq + 1):
            if sequence % step:
                store.delete(sequence)

    return delete


def old_and_new(store: Any, chance: random.Random) -> None:
    """The first message stays; of the others only the newest, deleted in a random order."""
    rows = list(range(2, store.last_seq - 50))
    chance.shuffle(rows)
    for sequence in rows:
        store.delete(sequence)


def thin_out(store: Any, chance: random.Random) -> None:
    """Each message lives for a random time."""
    for sequence in range(store.first_seq + 1, store.last_seq):
        if chance.random() < 0.3:
            store.delete(sequence)


def latest_per_subject(store: Any, chance: random.Random) -> None:
    """As a key-value bucket does."""
    kept = {row[3] for row in store.subjects_matching(b">")}
    for sequence in range(store.first_seq + 1, store.last_seq + 1):
        if sequence not in kept:
            store.delete(sequence)


@pytest.mark.parametrize(
    "delete",
    [all_but(2), all_but(7), all_but(500), old_and_new, thin_out, latest_per_subject],
    ids=["half", "seventh", "hardly", "old-and-new", "thin-out", "latest"],
)
def test_deletes_give_their_room_back(delete: Callable[[Any, random.Random], None]) -> None:
    run(delete, 12)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 1 << 30), st.lists(st.integers(2, 300), min_size=2, max_size=5))
def test_mixed_patterns(seed: int, steps: list[int]) -> None:
    patterns = [all_but(step) for step in steps] + [thin_out, old_and_new]

    def delete(store: Any, chance: random.Random) -> None:
        chance.choice(patterns)(store, chance)

    run(delete, 5, seed)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path)
    yield made
    made.end()


def test_an_old_message_does_not_keep_many_files(harness: Harness) -> None:
    harness.open()
    store = harness.create()
    for n in range(20000):
        store.add_message(b"k.%d" % (n % 7), b"x" * 200)
        if n > 100:
            store.delete(n - 50)
        if n % 50 == 49:
            harness.breathe()
    for sequence in range(2, store.last_seq - 10):
        store.delete(sequence)
    check(harness, store)
    assert store.first_seq == 1
    assert len(store.segments) <= 4
    harness.crash()
    (store,) = harness.open()
    assert harness.node.problems == []
    assert (store.first_seq, store.messages) == (1, 12)
