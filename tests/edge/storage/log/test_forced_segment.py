"""The active segment is ended before it is full, by whoever wants the older ones checkpointed."""

from tests.edge.storage.twin_harness import TwinHarness


def test_what_was_written_before_is_durable_though_nothing_follows() -> None:
    """The batch is cut in two by the new segment, and nobody else writes."""
    harness = TwinHarness()
    harness.open()
    harness.create()
    harness.commit()
    log = harness.node.log
    log.put_state(b"owner", b"key", b"value")
    log.begin_next()
    begin = harness.loop.time()
    harness.commit()
    assert harness.loop.time() - begin < 1.0, "until something else was written"
    harness.power_cut()
    harness.open()
    assert harness.node.log.states(b"owner") == {b"key": (b"value", [])}


def test_a_segment_without_records_of_a_batch_is_ended_as_it_is() -> None:
    harness = TwinHarness()
    harness.open()
    harness.create()
    harness.commit()
    log = harness.node.log
    number, lsn = log.active.number, log.handed
    log.begin_next()
    assert (log.active.number, log.handed) == (number + 1, lsn)
    harness.commit()
