"""Pages of the index that are packed hold what they held; old messages take few bytes of memory."""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from headwater.edge.storage.segments.file_store import FileStore
from tests.edge.storage.index.store_model import HEADERS, SUBJECTS
from tests.edge.storage.index.test_contract import FileMachine
from tests.edge.storage.store_harness import Harness

PAGE = 256
OPEN_PAGE_BYTES = 40 * PAGE
SECOND = 1_000_000_000
TURN = 16
"""Messages that come in one turn of the loop."""


class PackingMachine(FileMachine):
    """The contract of a store whose old pages are all packed, over streams of many pages."""

    def make_store(self) -> Any:
        self.path = Path(tempfile.mkdtemp(prefix="headwater-test-"))
        self.harness = Harness(self.path)
        self.harness.open()
        return self.packing(self.harness.create())

    def payload(self, chance: random.Random) -> bytes:
        return b"x" * chance.choice([0, 100, 100, 1000])

    def packing(self, store: Any) -> Any:
        store.open_least = store.open_wanted = 1
        return store

    def reopen(self) -> None:
        self.filters = []
        (store,) = self.harness.open()
        self.store = self.packing(store)
        assert self.harness.node is not None
        assert self.harness.node.problems == []
        self.check_everything()

    @rule(seed=st.integers(0, 1 << 16), count=st.integers(PAGE, 6 * PAGE), few=st.booleans())
    def burst(self, seed: int, count: int, few: bool) -> None:
        chance = random.Random(seed)
        subjects = SUBJECTS[:2] if few else SUBJECTS
        for _ in range(count):
            self.clock += chance.choice([0, 1, 1000, SECOND])
            headers = HEADERS if chance.random() < 0.1 else b""
            payload = self.payload(chance)
            subject = chance.choice(subjects)
            want = self.model.append(subject, headers, payload)
            got = self.store.add_message(subject, payload, headers, timestamp=self.clock)
            assert got == want
            self.settle_store()

    @rule(seed=st.integers(0, 1 << 16))
    def delete_some(self, seed: int) -> None:
        """Here and there, as consumers of a work queue do."""
        chance = random.Random(seed)
        there = sorted(self.model.messages)
        for sequence in chance.sample(there, len(there) // 8):
            assert self.store.delete(sequence) == self.model.remove(sequence)

    @rule()
    def rest(self) -> None:
        """Everything leaves the log, and files are written anew."""
        self.harness.commit()
        self.harness.settle()
        self.check_everything()

    @rule(index=st.integers(0, 1 << 20))
    def by_time(self, index: int) -> None:
        start = self.pick(index)
        there = [sequence for sequence in sorted(self.model.messages) if sequence >= start]
        if there:
            found = self.store.sequence_at_time(self.store.time_of(there[0]))
            assert self.store.time_of(found) == self.store.time_of(there[0])
            assert found <= there[0]

    @rule()
    def gaps(self) -> None:
        model = self.model
        if model.messages:
            whole = range(model.first, model.last + 1)
            assert self.store.deleted() == [at for at in whole if at not in model.messages]


TestPacking = PackingMachine.TestCase
TestPacking.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)


class VariedMachine(PackingMachine):
    """Messages that hardly have a size in common, of which some compress and some do not."""

    def make_store(self) -> Any:
        self.path = Path(tempfile.mkdtemp(prefix="headwater-test-"))
        self.harness = Harness(self.path, compressed=True)
        self.harness.open()
        return self.packing(self.harness.create())

    def payload(self, chance: random.Random) -> bytes:
        if chance.random() < 0.2:
            return chance.randbytes(chance.randrange(300))
        words = [b"pressure", b"bar", b"%d" % chance.randrange(1_000_000), b"press.07"]
        return b",".join(chance.choices(words, k=chance.choice([1, 10, 40, 40, 90])))


TestVaried = VariedMachine.TestCase
TestVaried.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path, segment_bytes=1 << 20)
    made.open()
    yield made
    made.end()


def fill(harness: Harness, store: FileStore, count: int, subjects: int, seed: int = 1) -> None:
    """Messages as sensors send them: at odd times, of odd sizes, and most of them alike."""
    chance = random.Random(seed)
    now = 1_700_000_000 * SECOND
    for number in range(count):
        now += chance.randrange(2_000_000)
        size = 128 + chance.choice([0, 0, 0, 1, 2, -1])
        subject = b"telemetry.%d" % (number % subjects)
        store.add_message(subject, b"x" * size, timestamp=now)
        if number % TURN == 0:
            harness.breathe()
    harness.commit()
    harness.settle()


def scatter(harness: Harness, store: FileStore, count: int, subjects: int) -> dict[bytes, list]:
    """Messages on subjects in random order; returns the sequences of each."""
    chance = random.Random(subjects)
    found: dict[bytes, list] = {}
    for number in range(count):
        subject = b"s.%d" % chance.randrange(subjects)
        now = (1_700_000_000 + number) * SECOND
        found.setdefault(subject, []).append(store.add_message(subject, b"x", timestamp=now))
        if number % TURN == 0:
            harness.breathe()
    harness.commit()
    harness.settle()
    return found


def found_by(store: FileStore, subject: bytes) -> list[int]:
    """The sequences of a subject, by asking again and again for the next one."""
    chosen = store.filter((subject,))
    found = []
    at = store.next_matching(chosen, 0)
    while at:
        found.append(at)
        at = store.next_matching(chosen, at + 1)
    return found


# How far subjects return decides how many bits the pages spend on where to look for them.
@pytest.mark.parametrize(
    ("subjects", "count"), [(20, 20_000), (700, 30_000), (6_000, 40_000), (70_000, 150_000)]
)
def test_subjects_are_found_however_far_they_return(
    harness: Harness, subjects: int, count: int
) -> None:
    store = harness.create()
    store.open_least = store.open_wanted = 2
    found = scatter(harness, store, count, subjects)
    chance = random.Random(1)
    some = chance.sample(sorted(found), 15)
    for subject in some:
        assert found_by(store, subject) == found[subject]
        assert store.count_matching(store.filter((subject,)), count // 3) == sum(
            at >= count // 3 for at in found[subject]
        )
        # Of each end, and between.
        gone = {*found[subject][:1], *found[subject][-1:], *chance.sample(found[subject], 1)}
        for at in chance.sample(sorted(gone), len(gone)):
            assert store.delete(at)
        found[subject] = [at for at in found[subject] if at not in gone]
        assert found_by(store, subject) == found[subject]
        found[subject].append(store.add_message(subject, b"y"))
        assert found_by(store, subject) == found[subject]
    half = count // 2
    last = [max((at for at in found[s] if at <= half), default=0) for s in some]
    assert store.filter(tuple(some)).last_ones(half, 0) == sorted(filter(None, last))
    harness.commit()
    harness.settle()
    harness.close()
    (store,) = harness.open()
    for subject in some:
        assert found_by(store, subject) == found[subject]


@pytest.mark.parametrize(("subjects", "bytes_max"), [(10, 2.0), (1_000, 3.0), (10_000, 3.8)])
def test_subjects_in_any_order_take_few_bytes(
    harness: Harness, subjects: int, bytes_max: float
) -> None:
    store = harness.create()
    store.open_least = store.open_wanted = 4
    scatter(harness, store, 60_000, subjects)
    open_bytes = store.open_count * OPEN_PAGE_BYTES
    assert (store.index_bytes() - open_bytes) / store.messages < bytes_max


@pytest.mark.parametrize(("subjects", "bytes_max"), [(1, 4.0), (100, 5.0)])
def test_old_messages_take_few_bytes(harness: Harness, subjects: int, bytes_max: float) -> None:
    store = harness.create()
    store.open_least = store.open_wanted = 4
    fill(harness, store, 60_000, subjects)
    open_bytes = store.open_count * OPEN_PAGE_BYTES
    assert store.messages == 60_000
    assert (store.index_bytes() - open_bytes) / store.messages < bytes_max


# What compresses to one size more or less, what compresses to any, and what does not at all.
@pytest.mark.parametrize(
    ("words", "padded", "compressed", "bytes_max"),
    [(60, 900, True, 4.25), (60, 0, True, 5.25), (60, 0, False, 4.6)],
)
def test_sizes_that_differ_take_few_bytes(
    tmp_path: Path, words: int, padded: int, compressed: bool, bytes_max: float
) -> None:
    made = Harness(tmp_path, segment_bytes=1 << 20, compressed=compressed)
    made.open()
    store = made.create()
    store.open_least = store.open_wanted = 4
    chance = random.Random(words)
    known = [b"%x" % chance.getrandbits(28) for _ in range(400)]
    sent = {}
    for number in range(60_000):
        payload = b",".join(chance.choices(known, k=chance.randrange(4, words))).ljust(padded)
        subject = b"s.%d" % chance.randrange(10_000)
        now = (1_700_000_000 + number) * SECOND
        sent[store.add_message(subject, payload, timestamp=now)] = (subject, payload)
        if number % TURN == 0:
            made.breathe()
    made.commit()
    made.settle()
    open_bytes = store.open_count * OPEN_PAGE_BYTES
    packed = store.messages - store.open_count * PAGE
    taken = (store.index_bytes() - open_bytes) / packed
    for sequence in chance.sample(sorted(sent), 20_000):
        message = store.get(sequence)
        assert message is not None
        assert (message.subject, message.payload) == sent[sequence]
    made.end()
    assert taken < bytes_max


def test_a_start_packs_what_it_reads(harness: Harness) -> None:
    store = harness.create()
    fill(harness, store, 60_000, 10)
    harness.close()
    (store,) = harness.open()
    assert store.messages == 60_000
    assert store.open_count * PAGE < 50_000
    assert store.count_matching(store.filter((b"telemetry.3",)), 1) == 6_000


def test_more_pages_stay_open_while_old_ones_are_written(harness: Harness) -> None:
    store = harness.create()
    store.open_least = store.open_wanted = 4
    fill(harness, store, 20_000, 1)
    few = store.open_least
    for sequence in range(2, 20_000, 2):
        store.delete(sequence)
        harness.breathe()
    harness.commit()
    harness.settle()
    assert store.open_wanted > few
    assert store.messages == 20_000 - 9_999
    assert store.deleted(3) == [2, 4, 6]
    fill(harness, store, 60_000, 1)
    assert store.open_wanted == few


# Times of one burst, of few, of a burst a day before the others, and with a day between any two.
@pytest.mark.parametrize(
    ("together", "apart_us", "bytes_max"),
    [(10_000, 1_000, 0.7), (40, 300_000, 1.0), (3, 7, 1.1), (40, 86_400_000_000, 1.6)],
)
def test_messages_that_come_together_share_their_time(
    harness: Harness, together: int, apart_us: int, bytes_max: float
) -> None:
    store = harness.create()
    store.open_least = store.open_wanted = 2
    chance = random.Random(together)
    now, times = 1_700_000_000 * SECOND, {}
    for number in range(20_000):
        if number % together == 0:
            now += 1000 * chance.randrange(apart_us // 2, 2 * apart_us)
        times[store.add_message(b"s", b"x" * 100, timestamp=now)] = now
        harness.breathe()
    harness.commit()
    harness.settle()
    open_bytes = store.open_count * OPEN_PAGE_BYTES
    assert (store.index_bytes() - open_bytes) / store.messages < bytes_max
    for sequence in chance.sample(sorted(times), 5_000):
        assert store.delete(sequence)
        del times[sequence]
    assert {sequence: store.time_of(sequence) for sequence in times} == times
    first = {}
    for sequence, time in sorted(times.items()):
        first.setdefault(time, sequence)
    assert {time: store.sequence_at_time(time) for time in first} == first
