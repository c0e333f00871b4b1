"""What is read along with a message is never taken for what is written there later."""

from tests.edge.storage.twin_harness import TwinHarness, contents


def test_bytes_that_a_crash_left_behind_the_end_of_a_segment_are_read_once() -> None:
    harness = TwinHarness(segment_bytes=16384)
    harness.open()
    store = harness.create()
    added = 0

    def add(count: int) -> None:
        nonlocal added
        for _ in range(count):
            added += 1
            store.add_message(b"s", b"payload %d " % added * 8)
            if added % 10 == 0:
                harness.commit()
        harness.settle()

    add(150)
    harness.power_cut(0, "everything")
    segment = next(file for path, file in harness.disk.walk() if path[-1].endswith(".seg"))
    segment.content += bytes(4096)
    (store,) = harness.open().values()
    assert len(contents(store)) == 150  # reads behind the end, too
    add(60)
    assert len(contents(store)) == 210
    assert not store.lost
