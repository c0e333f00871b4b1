"""Records of removals that are damaged in both copies: they take nothing else away, ever."""

from tests.edge.storage.twin_harness import TwinHarness, contents


def test_a_damaged_record_of_removals_never_leaves_the_log() -> None:
    harness = TwinHarness()
    harness.open()
    store = harness.create()
    for n in range(1, 41):
        store.add_message(b"s", b"message %d" % n)
    incarnation = store.incarnation
    # Messages in segments and their removal in the log: it is to go there, too, and into an index.
    harness.close()
    store = harness.open()[incarnation]
    assert store.durable_last == 40
    store.delete(33)
    harness.commit()
    want = contents(store)
    harness.disk.kill()
    harness.loop.drop()
    runs = (33).to_bytes(8, "little") * 2
    flipped = 0
    for parts, file in harness.disk.walk():
        at = bytes(file.content).find(runs) if "log" in parts else -1
        while at >= 0:
            # Now it says that 1 to 33 are gone.
            harness.disk.flip(parts, at, 5)
            flipped += 1
            at = bytes(file.content).find(runs, at + 1)
    assert flipped == 2
    for _ in range(3):
        after = TwinHarness(harness.disk)
        found = after.open()[incarnation]
        rows = contents(found)
        assert rows.keys() - want.keys() <= {33}
        assert {at: rows[at] for at in want} == want
        found.add_message(b"s", b"more")
        after.settle()
        want = contents(found)
        after.close()
