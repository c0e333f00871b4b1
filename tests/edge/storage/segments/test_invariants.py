"""Values that cannot be are planted in a store, and never written or acknowledged."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.edge.storage.format.errors import InvariantBroken
from headwater.edge.storage.segments.manifest import MANIFESTS_OWNER
from headwater.edge.storage.segments.reservations import RESERVATION_KEY
from tests.edge.storage.store_harness import Harness, contents


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path)
    made.open()
    yield made
    made.end()


def fill(harness: Harness, store: object, count: int) -> None:
    for n in range(count):
        store.add_message(b"s", b"%08d" % n + b"x" * 100)
        if n % 50 == 49:
            harness.breathe()
    harness.commit()


def test_a_manifest_is_not_ahead_of_the_stream(harness: Harness) -> None:
    store = harness.create()
    fill(harness, store, 2000)
    harness.settle()
    key = store.incarnation.encode()
    before = harness.node.log.states(MANIFESTS_OWNER)[key]
    store.durable_last, kept = store.last_seq + 5, store.durable_last
    with pytest.raises(InvariantBroken, match="the manifest would list"):
        harness.node.manifests.put([store])
    store.durable_last = kept
    segment = store.segments[-1]
    segment.durable_end += 8
    with pytest.raises(InvariantBroken, match="the manifest would list"):
        harness.node.manifests.put([store])
    assert harness.node.log.states(MANIFESTS_OWNER)[key] == before


def test_a_footer_is_not_ahead_of_the_stream(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    """The checkpoint is refused, the log keeps everything, and goes on once the value is right."""
    store = harness.create()
    harness.node.checkpointer.retry_delay = 0.01
    store.durable_last = 1 << 40
    log = harness.node.log
    for _ in range(log.keep + 2):
        fill(harness, store, 1)
        log.begin_next()
        harness.commit()
    harness.node.checkpointer.wake()
    harness.until(lambda: "cannot be checkpointed" in caplog.text)
    assert "would end at sequence 1099511627776" in caplog.text
    assert not list(store.directory.glob("*.seg")) and not store.copying and not store.segments
    assert len(log.live) > log.keep + 1
    store.durable_last = 0
    harness.settle()
    assert list(store.directory.glob("*.seg"))
    harness.crash()
    (store,) = harness.open()
    assert sorted(contents(store)) == list(range(1, log.keep + 3))


def test_a_reservation_does_not_go_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    harness = Harness(tmp_path, interval=60.0)
    harness.open()
    store = harness.create()
    fill(harness, store, 10)
    before = harness.node.log.states(store.incarnation.encode())[RESERVATION_KEY]
    store.reserved_to = 1 << 40
    harness.node.reservations.reserve(store)
    assert "1099511627776 are reserved" in caplog.text and "wait for their sync" in caplog.text
    assert harness.node.log.states(store.incarnation.encode())[RESERVATION_KEY] == before
    harness.end()


def test_nothing_beyond_the_end_of_a_stream_is_acknowledged(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    store, other = harness.create("S"), harness.create("T")
    fill(harness, store, 3)
    store.add_message(b"s", b"4")
    other.add_message(b"s", b"1")
    harness.kernel.turn()  # the batch is handed over; the loop does not hear of its sync yet
    store.last_seq = 3
    harness.commit()
    assert (store.committed, other.committed) == (3, 1)
    assert "the log has sequence 4 of a stream that ends at 3" in caplog.text
    assert f"the stream in {store.directory} takes no more messages" in caplog.text
    with pytest.raises(InvariantBroken):
        store.add_message(b"s", b"5")
    other.add_message(b"s", b"2")
    harness.commit()
    assert other.committed == 2, "other streams go on"


def test_the_head_of_a_stream_is_not_beyond_its_end(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    store = harness.create()
    fill(harness, store, 3)
    store.committed = 70
    store.delete(1)
    harness.turn()
    assert "would begin at 2 and be safe up to 70" in caplog.text
    harness.crash()
    (store,) = harness.open()
    assert sorted(contents(store)) == [1, 2, 3], "the removal was not written"
