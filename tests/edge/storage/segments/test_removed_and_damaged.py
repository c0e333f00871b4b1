"""What was removed and is damaged is no loss: `lost` names what somebody misses, and only that."""

import contextlib
from pathlib import Path

import pytest

from headwater.edge.storage.format.errors import Damaged
from headwater.edge.storage.segments.file_store import FileStore
from tests.edge.storage.twin_harness import TwinHarness


def flip_payloads(harness: TwinHarness, numbers: set[int]) -> None:
    """Hurt these messages wherever a file has them."""
    for parts, file in harness.disk.walk():
        for number in numbers:
            at = bytes(file.content).find(b"message %04d" % number)
            while at >= 0:
                harness.disk.flip(parts, at + 8, 3)
                at = bytes(file.content).find(b"message %04d" % number, at + 1)


def filled(messages: int) -> TwinHarness:
    harness = TwinHarness()
    harness.open()
    store = harness.create()
    for number in range(1, messages + 1):
        store.add_message(b"s", b"message %04d" % number)
    harness.settle()
    return harness


def readable(store: FileStore) -> set[int]:
    """Sequences that can be read; what cannot be is known as lost afterwards."""
    found = set()
    for sequence in range(1, store.last_seq + 1):
        with contextlib.suppress(Damaged):
            if store.get(sequence) is not None:
                found.add(sequence)
    return found


def begin_again(harness: TwinHarness) -> TwinHarness:
    after = TwinHarness(harness.disk)
    after.open()
    return after


@pytest.mark.parametrize("messages", [40, 400])
@pytest.mark.parametrize("clean", [True, False])
def test_removed_messages_are_not_told_as_lost(messages: int, clean: bool) -> None:
    harness = filled(messages)
    [store] = harness.streams.values()
    want = readable(store)
    for sequence in (5, 9, 30):
        store.delete(sequence)
    store.purge(None, 4)
    harness.commit()
    if clean:
        harness.close()
    else:
        harness.disk.kill()
        harness.loop.drop()
    flip_payloads(harness, {2, 5, 20, 30})
    for _ in range(2):
        after = begin_again(harness)
        [found] = after.streams.values()
        assert readable(found) == want - {1, 2, 3, 5, 9, 20, 30}
        assert set(found.lost) == {20}
        after.close()


def segments(harness: TwinHarness) -> list[tuple[str, ...]]:
    found = [parts for parts, _ in harness.disk.walk() if Path(parts[-1]).suffix == ".seg"]
    return sorted(found)


@pytest.mark.parametrize("indexed", [True, False])
def test_an_emptied_segment_loses_what_was_there(indexed: bool) -> None:
    harness = filled(40)
    [store] = harness.streams.values()
    for number in range(400):
        store.add_message(b"s", b"more %04d" % number)
    harness.settle()
    for sequence in (5, 9):
        store.delete(sequence)
    store.purge(None, 4)
    harness.commit()
    there = readable(store)
    harness.disk.kill()
    harness.loop.drop()
    first = segments(harness)[0]
    if not indexed:
        harness.disk.unlink((*first[:-1], first[-1].replace(".seg", ".idx")))
    harness.disk.file(first).content.clear()
    after = begin_again(harness)
    [found] = after.streams.values()
    assert readable(found) | set(found.lost) == there
    assert found.lost
    after.close()
