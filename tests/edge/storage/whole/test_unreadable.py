"""Blocks of the device that cannot be read: at most what stands in them is lost, and it is told."""

import pytest

from headwater.edge.ports.files import write_file
from headwater.edge.storage.segments.loss import lost_bytes
from tests.edge.storage.twin_harness import TwinHarness, contents

BLOCK = 4096
MESSAGES = 330


def stored(clean: bool) -> tuple[TwinHarness, str, dict[int, bytes]]:
    """A stopped or killed store with two streams, of which the first is looked at."""
    harness = TwinHarness(segment_bytes=4 * BLOCK)
    harness.open()
    store, other = harness.create("S"), harness.create("T")
    rows = {}
    for n in range(1, MESSAGES + 1):
        payload = b"%d," % n * 20
        rows[store.add_message(b"a", payload)] = payload
        if n % 10 == 0:
            other.add_message(b"b", b"%d" % n)
            harness.commit()
        if n % 110 == 0:
            harness.settle()
    if clean:
        harness.close()
    else:
        harness.disk.kill()
        harness.loop.drop()
    return harness, store.incarnation, rows


@pytest.mark.parametrize("clean", [True, False])
def test_every_block_that_cannot_be_read_costs_no_more_than_itself(clean: bool) -> None:
    harness, incarnation, rows = stored(clean)
    kinds = set()
    sized: list[bool] = []
    for parts, file in harness.disk.walk():
        if parts[-1] in ("lock", "HEADWATER"):
            continue
        for start in range(0, len(file.content), BLOCK):
            disk = harness.disk.copy()
            disk.file(parts).unreadable = [(start, start + BLOCK)]
            after = TwinHarness(disk, segment_bytes=4 * BLOCK, seed=f"{parts}{start}")
            store = after.open().get(incarnation)
            assert store is not None, (parts, start)
            kinds.add(parts[-1].rpartition(".")[2])
            last = store.last_seq
            found = {}
            for sequence in rows:
                try:
                    message = store.get(sequence)
                except Exception as error:
                    assert "damaged" in str(error), (parts, start, error)
                    message = None
                if message is not None:
                    found[sequence] = message.payload
                    assert message.payload == rows[sequence], (parts, start)
            # What stood behind the last record that is left has no name, but the stream goes on
            # above it.
            known = max([*found, *store.lost])
            missing = {sequence for sequence in rows if sequence <= known} - set(found)
            assert known == MESSAGES or (parts[-2], store.last_seq > MESSAGES) == ("log", True)
            assert MESSAGES - known <= BLOCK // 120, (parts, start)
            assert missing <= set(store.lost), (parts, start, missing, store.lost)
            assert len(missing) <= BLOCK // 120 + 3, (parts, start, sorted(missing))
            if missing:
                sized.append(lost_bytes(store) >= 60 * len(missing))
            assert last >= MESSAGES, (parts, start)
            assert store.add_message(b"a", b"new") > MESSAGES
            after.commit()
            disk.kill()
            after.loop.drop()
    assert {"log", "seg", "idx", "meta", "slots"} <= kinds
    assert sized.count(True) > len(sized) // 2


def test_a_stream_whose_metadata_has_a_copy_left_is_served() -> None:
    harness, incarnation, rows = stored(True)
    for parts, file in harness.disk.walk():
        if parts[-1] in ("meta", "slots", "clean", "HEADWATER"):
            file.unreadable = [(0, BLOCK)]
    store = harness.open()[incarnation]
    assert {sequence: row[2] for sequence, row in contents(store).items()} == rows
    assert any("copy was damaged" in str(problem) for problem in harness.node.problems)
    harness.close()


@pytest.mark.parametrize("swapped", [True, False])
def test_a_meta_of_another_stream_is_not_used(swapped: bool) -> None:
    harness = TwinHarness()
    harness.open()
    stores = [harness.create(name) for name in "AB"]
    for n, store in enumerate(stores):
        for i in range(n + 3):
            store.add_message(b"s", b"%d %d" % (n, i))
    want = {store.incarnation: contents(store) for store in stores}
    paths = [store.directory / "meta" for store in stores]
    harness.commit()
    harness.close()
    first, second = (path.read_bytes() for path in paths)
    write_file(paths[0], second)
    if swapped:
        write_file(paths[1], first)
    found = harness.open()
    assert harness.node is not None and any(
        "another stream" in str(p) for p in harness.node.problems
    )
    for incarnation, store in found.items():
        assert contents(store) == want[incarnation]
    assert set(found) == set(want)
    assert harness.node.quarantined == 0
    harness.close()
