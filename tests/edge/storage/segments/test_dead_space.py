"""Many streams that keep little: what their segments waste is bounded for all of them together."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.edge.storage.store_harness import Harness, contents, segment_bytes

SEGMENT = 256 << 10
STREAMS = 40
SPARED = 64 << 10
"""Bytes of a stream that are not worth another file."""
SPACE = 4 * SEGMENT + STREAMS * SPARED


@pytest.fixture(params=["plain", "sealed"])
def harness(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Harness]:
    made = Harness(tmp_path, SEGMENT, sealed=request.param == "sealed")
    made.open()
    yield made
    made.end()


def size(stores: list[Any]) -> int:
    return sum(segment_bytes(store) for store in stores)


def rest(harness: Harness, stores: list[Any]) -> None:
    harness.commit()
    harness.settle()
    harness.until(lambda: not any(store.leaving for store in stores))
    harness.until(
        lambda: size(stores) == sum(part.end for store in stores for part in store.segments)
    )


def check_starts(harness: Harness, want: dict[str, Any], first: dict[str, int]) -> None:
    for restart in (harness.crash, harness.close):
        restart()
        stores = {store.incarnation: store for store in harness.open()}
        assert harness.node is not None
        assert harness.node.problems == []
        assert {name: contents(store) for name, store in stores.items()} == want
        assert {name: store.first_seq for name, store in stores.items()} == first


def facts(stores: list[Any]) -> tuple[dict[str, Any], dict[str, int]]:
    return (
        {store.incarnation: contents(store) for store in stores},
        {store.incarnation: store.first_seq for store in stores},
    )


def test_streams_that_keep_the_newest(harness: Harness) -> None:
    stores = [harness.create(f"S{n}") for n in range(STREAMS)]
    for turn in range(44):
        for store in stores:
            for n in range(20):
                store.add_message(b"k.%d" % n, b"%03d" % turn * 40)
                # Late enough to have left the log; the first message stays.
                if turn > 6 and store.last_seq - 140 > 1:
                    store.delete(store.last_seq - 140)
        harness.breathe()
    rest(harness, stores)
    # Nothing bounds them one by one: each has less than a segment.
    assert all(sum(part.end for part in store.segments) < SEGMENT for store in stores)
    assert size(stores) < SPACE + SEGMENT
    check_starts(harness, *facts(stores))


def test_queues_that_were_worked_off(harness: Harness) -> None:
    stores = [harness.create(f"S{n}") for n in range(STREAMS)]
    for store in stores:
        for n in range(900):
            store.add_message(b"job", b"%03d" % n * 40)
            if n % 100 == 99:
                harness.breathe()
    rest(harness, stores)
    assert size(stores) > 5 * SPACE // 3
    for store in stores:
        for sequence in range(1, store.last_seq + 1):
            store.delete(sequence)
        harness.breathe()
    busy = harness.create("busy")
    for n in range(6000):
        busy.add_message(b"more", b"x" * 200)
        if n % 100 == 99:
            harness.breathe()
    rest(harness, [*stores, busy])
    assert size(stores) < SPACE
    check_starts(harness, *facts([*stores, busy]))
