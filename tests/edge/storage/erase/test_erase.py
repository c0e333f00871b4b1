"""An erased message is in no file of the store any more, whenever the node ends."""

import os
from collections.abc import Callable, Iterator
from inspect import getclosurevars
from pathlib import Path

import pytest

from headwater.edge.storage.device.background import Background
from headwater.edge.storage.device.durable_file import TwoCopyFile
from headwater.edge.storage.erase import eraser
from headwater.edge.storage.erase.erase_jobs import in_bundle, record_for
from headwater.edge.storage.erase.erase_rows import IN_BUNDLE, IN_SEGMENT
from tests.edge.storage.format.store_decoder import Decoder
from tests.edge.storage.store_harness import Harness, contents

SECRET = b"personal-secret-of-nobody-else"
SUBJECT = b"people.jane-doe-only-here"


@pytest.fixture(params=["alone", "gathered"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path, gathered=request.param == "gathered")
    yield made
    made.end()


def fill(harness: Harness, store: object, count: int) -> None:
    for n in range(count):
        store.add_message(b"s.%d" % (n % 3), b"%08d" % n + b"x" * 100)
        if n % 50 == 49:
            harness.breathe()
    harness.commit()


def traces(directory: Path) -> list[str]:
    """Files in which payload, headers or subject of the secret message are found."""
    found = []
    for path in directory.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            found += [f"{path.name}: {text!r}" for text in (SECRET, SUBJECT) if text in data]
    return found


def add_secret(store: object) -> int:
    headers = b"NATS/1.0\r\nX: " + SECRET + b"\r\n\r\n"
    return store.add_message(SUBJECT, SECRET + b"-payload", headers)


def erase(harness: Harness, store: object, sequence: int) -> None:
    assert store.delete(sequence, True)
    finish(harness)


def finish(harness: Harness) -> None:
    harness.node.log.hand_over()
    harness.until(lambda: not harness.node.eraser._pending and not harness.node.eraser._busy)


def check(harness: Harness, want: dict) -> None:
    """Nothing is left, through a crash and a clean stop, and everything else is there."""
    assert traces(harness.directory) == []
    for restart in (harness.crash, harness.close):
        restart()
        assert traces(harness.directory) == []
        (store,) = harness.open()
        assert harness.node.problems == []
        assert store.lost == {}
        assert contents(store) == want
        assert traces(harness.directory) == []


@pytest.mark.parametrize("behind", [0, 10, 3000])
@pytest.mark.parametrize("before", [0, 5, 2000])
def test_nothing_is_left(harness: Harness, before: int, behind: int) -> None:
    """In the log, in a segment, as the first message, the last one and in between."""
    harness.open()
    store = harness.create()
    fill(harness, store, before)
    sequence = add_secret(store)
    fill(harness, store, behind)
    harness.settle()
    assert traces(harness.directory)
    want = contents(store)
    del want[sequence]
    erase(harness, store, sequence)
    assert store.last_seq == before + behind + 1
    check(harness, want)


def test_what_recovery_found_is_erased_too(harness: Harness) -> None:
    harness.open()
    store = harness.create()
    fill(harness, store, 1500)
    sequence = add_secret(store)
    fill(harness, store, 1500)
    for restart in (harness.crash, harness.close, harness.crash):
        restart()
        (store,) = harness.open()
    want = contents(store)
    del want[sequence]
    erase(harness, store, sequence)
    check(harness, want)


def test_used_slots_hold_nothing_old(harness: Harness) -> None:
    """The message went through slots that were used again and are half filled anew."""
    harness.open()
    store = harness.create()
    sequences = []
    for _ in range(6):
        sequences.append(add_secret(store))
        fill(harness, store, 400)
    harness.settle()
    want = contents(store)
    for sequence in sequences:
        del want[sequence]
        assert store.delete(sequence, True)
    finish(harness)
    assert harness.node.eraser.erased == 6
    check(harness, want)


def test_while_messages_move_and_segments_are_rewritten(harness: Harness) -> None:
    """Erasing meets checkpointing and compaction at every step that the loop can be in."""
    harness.open()
    store = harness.create()
    secrets = []
    for round_ in range(60):
        secrets.append(add_secret(store))
        for n in range(100):
            store.add_message(b"s.%d" % (n % 3), b"x" * 150)
        for sequence in range(max(1, store.last_seq - 900), store.last_seq - 700):
            if sequence not in secrets and sequence % 7:
                store.delete(sequence)
        for _ in range(round_ % 5):
            harness.turn()
        harness.breathe()
        if round_ >= 5:
            assert store.delete(secrets[round_ - 5], True)
        if round_ == 30:
            # What is deleted from now on stands in segments, however slow the machine is.
            harness.settle()
    for sequence in secrets[-5:]:
        assert store.delete(sequence, True)
    finish(harness)
    harness.settle()
    assert harness.node.compactor.rewritten
    check(harness, contents(store))


class Delayed:
    """A background that begins with jobs of one kind when it is told to."""

    def __init__(self, background: Background, kind: str) -> None:
        self._background = background
        self._kind = kind
        self.waiting: list[tuple] = []
        self.open = False

    def submit(self, work: object, done: object) -> None:
        if self._kind in work.__qualname__:
            self.waiting.append((work, done))
            self.begin(self.open)
        else:
            self._background.submit(work, done)

    def begin(self, really: bool = True) -> None:
        self.open = really
        while really and self.waiting:
            self._background.submit(*self.waiting.pop(0))


def use_slots_again(harness: Harness, store: object) -> None:
    """Go on until every slot that there is now was used for something else."""
    retired = harness.node.checkpointer.done
    while harness.node.checkpointer.done < retired + 8:
        fill(harness, store, 100)
    harness.settle()


def test_a_slot_is_not_used_again_before_it_was_overwritten(harness: Harness) -> None:
    """The segment with the message is checkpointed while the overwriting waits for its turn."""
    harness.open()
    store = harness.create()
    sequence = add_secret(store)
    fill(harness, store, 10)
    harness.node.eraser._background = delayed = Delayed(harness.node.background, "EraseJob.run")
    assert store.delete(sequence, True)
    harness.until(lambda: bool(delayed.waiting))
    use_slots_again(harness, store)
    delayed.begin()
    finish(harness)
    check(harness, contents(store))


def test_a_message_that_leaves_the_log_before_its_intent_is_durable(harness: Harness) -> None:
    """Its segment of the log is checkpointed without it, and the slot still has its bytes."""
    harness.open()
    store = harness.create()
    sequence = add_secret(store)
    fill(harness, store, 10)
    eraser_, begin = harness.node.eraser, harness.node.eraser._start_round
    eraser_._start_round = lambda: None
    assert store.delete(sequence, True)
    first = harness.node.log.live[0].number
    while harness.node.log.live[0].number == first:
        fill(harness, store, 100)
    harness.settle()
    eraser_._start_round = begin
    begin()
    finish(harness)
    check(harness, contents(store))


def test_a_slot_is_not_used_again_before_it_was_wiped(harness: Harness) -> None:
    """Behind the end of a live segment that ended early is much to wipe."""
    harness.open()
    store = harness.create()
    sequence = add_secret(store)
    use_slots_again(harness, store)
    log = harness.node.log
    while log.active.slot.blank:
        fill(harness, store, 100)
    harness.settle()
    short = log.active.slot.path
    log.begin_next()
    harness.node.eraser._background = delayed = Delayed(harness.node.background, "_wipe_slot")
    assert store.delete(sequence, True)
    wiped = None
    while wiped != short:
        delayed.begin()
        delayed.open = False
        harness.until(lambda: bool(delayed.waiting))
        wiped = getclosurevars(delayed.waiting[0][0]).nonlocals["path"]
    number = log.active.number
    for _ in range(100):
        fill(harness, store, 50)
        if any(at.slot.path == wiped and at.number > number for at in log.live[:-1]):
            break
    delayed.begin()
    finish(harness)
    check(harness, contents(store))


def test_what_a_segment_gained_meanwhile_is_not_cut(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages move to the last segment while the eraser waits for removals to be durable."""
    harness.open()
    store = harness.create()
    sequence = add_secret(store)
    fill(harness, store, 1500)
    harness.settle()
    steps: list[Callable[[], object]] = []
    monkeypatch.setattr(eraser, "when_removals_last", lambda log, then: steps.append(then))
    assert store.delete(sequence, True)
    harness.until(lambda: bool(steps))
    use_slots_again(harness, store)
    monkeypatch.undo()
    steps.pop()()
    finish(harness)
    check(harness, contents(store))


def test_other_messages_of_the_subject_keep_it(harness: Harness) -> None:
    harness.open()
    store = harness.create()
    fill(harness, store, 300)
    first = add_secret(store)
    second = store.add_message(SUBJECT, b"harmless")
    fill(harness, store, 3000)
    harness.settle()
    erase(harness, store, first)
    assert not any(repr(SECRET) in trace for trace in traces(harness.directory))
    assert store.get(second).payload == b"harmless"
    erase(harness, store, second)
    check(harness, contents(store))


def test_a_crash_between_the_intent_and_the_end(harness: Harness) -> None:
    """The intent is durable, nothing was overwritten: the next start does it."""
    harness.open()
    store = harness.create()
    fill(harness, store, 200)
    old = add_secret(store)
    fill(harness, store, 2500)
    new = add_secret(store)
    harness.commit()
    harness.settle()
    want = contents(store)
    del want[old], want[new]
    harness.node.eraser._start_round = lambda: None
    assert store.delete(old, True) and store.delete(new, True)
    harness.commit()
    assert traces(harness.directory)
    harness.crash()
    (store,) = harness.open()
    assert harness.node.problems == []
    finish(harness)
    assert traces(harness.directory) == []
    check(harness, want)


@pytest.mark.parametrize("where", ["log", "segment"])
@pytest.mark.parametrize("keep", [0, 1, 3, 40, 63, 64, 90])
def test_a_half_overwritten_record_is_no_damage(harness: Harness, where: str, keep: int) -> None:
    """Power went off while the record was being overwritten: `keep` bytes of it are new."""
    harness.open()
    store = harness.create()
    fill(harness, store, 100)
    sequence = add_secret(store)
    fill(harness, store, 2500 if where == "segment" else 100)
    if where == "segment":
        harness.settle()
    want = contents(store)
    del want[sequence]
    harness.node.eraser._start_round = lambda: None
    assert store.delete(sequence, True)
    harness.commit()
    (intent,) = harness.node.eraser._pending.values()
    (location,) = intent.locations
    assert (location.where == IN_SEGMENT) == (where == "segment")
    path = store.segments[0].path if store.segments else None
    new = record_for(intent.stream, location, store.seed)
    if where == "log":
        segment = next(s for s in harness.node.log.live if s.number == location.number)
        path = segment.slot.path
        if location.where == IN_BUNDLE:
            new = in_bundle(segment, intent.stream, location, store.seed).parts[0][1]
    harness.crash()
    with path.open("r+b") as file:
        file.seek(location.offset)
        file.write(new[:keep])
    (store,) = harness.open()
    assert harness.node.problems == []
    finish(harness)
    check(harness, want)


def test_an_erase_that_fails_is_told_and_done_later(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    from headwater.edge.storage.erase import eraser
    from headwater.edge.storage.format.errors import StoreError

    monkeypatch.setattr(eraser, "RETRY", 0.01)
    harness.open()
    store = harness.create()
    fill(harness, store, 100)
    sequence = add_secret(store)
    fill(harness, store, 3000)
    harness.settle()
    segment = next(s for s in store.segments if s.first <= sequence <= s.last)
    hidden = segment.path.with_name("hidden")
    segment.path.rename(hidden)
    segment.path.mkdir()
    assert store.delete(sequence, True)
    waiting = asyncio.ensure_future(harness.node.eraser.wait(), loop=harness.loop)
    harness.node.log.hand_over()
    harness.until(waiting.done)
    assert isinstance(waiting.exception(), StoreError)
    segment.path.rmdir()
    os.rename(hidden, segment.path)
    finish(harness)
    check(harness, contents(store))


def test_what_is_kept_aside_is_overwritten(harness: Harness) -> None:
    harness.open()
    other, store = harness.create("other"), harness.create()
    fill(harness, other, 5)
    fill(harness, store, 20)
    secret = add_secret(store)
    fill(harness, store, 20)
    want = contents(store)
    harness.crash()
    TwoCopyFile(other.directory / "meta").replace(b"newer than what the log has, and nonsense")
    (store,) = harness.open()
    kept = harness.directory / "jetstream" / "quarantine"
    assert traces(kept) != []
    log = kept / "log-1.log"
    data = bytearray(log.read_bytes())
    at = data.rindex(b"HWR1", 0, data.index(SECRET))
    data[at + 60] ^= 1
    (kept / "log-damaged").write_bytes(data)
    erase(harness, store, secret)
    del want[secret]
    assert contents(store) == want
    assert traces(kept) == []


def test_memory_is_overwritten(harness: Harness) -> None:
    harness.open()
    store = harness.node.create_stream("A", "M", b"", "memory")
    sequence = add_secret(store)
    assert store.delete(sequence, True)
    assert store.get(sequence) is None
    assert store.messages == 0


def test_the_independent_decoder_reads_erased_records(harness: Harness) -> None:
    harness.open()
    store = harness.create()
    fill(harness, store, 50)
    sequence = add_secret(store)
    fill(harness, store, 3000)
    harness.settle()
    erase(harness, store, sequence)
    want = contents(store)
    harness.close()
    decoder = Decoder(harness.directory)
    decoder.read()
    (found,) = decoder.streams.values()
    assert found.keys() == want.keys()
