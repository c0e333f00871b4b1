"""What a power cut leaves of the last batches when single sectors of them were not written."""

import pytest

from headwater.edge.ports.twins.inode import SECTOR_BYTES, TwinFile
from tests.edge.storage.twin_harness import TwinHarness, contents

MESSAGES = 30


def cut_short() -> tuple[TwinHarness, TwinFile]:
    """A store whose power goes before the second of two batches is synced, and the file that has
    them."""
    harness = TwinHarness(segment_bytes=1 << 16)
    harness.open()
    store = harness.create("S")
    for number in range(MESSAGES):
        store.add_message(b"a", b"first %d" % number, b"")
    harness.commit()
    moments = []

    def watch(what: str, path: str) -> None:
        if what == "sync" and "slot" in path:
            moments.append(harness.disk.copy())

    for number in range(MESSAGES):
        store.add_message(b"b", b"second %d" % number * 5, b"")
    harness.node.log.put_state(b"consumers", b"one", b"state")
    harness.disk.watch = watch
    harness.commit()
    after = TwinHarness(moments[0], segment_bytes=1 << 16)
    files = [
        after.disk.file(path.parts)
        for path in (after.disk.root / "data/jetstream/log").glob("slot-*")
    ]
    changed = [file for file in files if file.unsynced]
    assert len(changed) == 1
    return after, changed[0]


def unsynced(file: TwinFile) -> range:
    """Offsets of the sectors that only the second batch has."""
    begin = min(change.offset for change in file.unsynced)
    end = max(change.offset + len(change.data or b"") for change in file.unsynced)
    return range(-(-begin // SECTOR_BYTES) * SECTOR_BYTES, end, SECTOR_BYTES)


def replace(file: TwinFile, at: int, sector: bytes) -> None:
    """All but one sector of what was written got to the disk."""
    file.content[at : at + SECTOR_BYTES] = sector
    file.unsynced = []
    file.durable[:] = file.content


# The end of an earlier batch: of a footer's body, and zeros up to the next sector.
LAST_OF_BATCH = bytes(range(1, 73)).ljust(SECTOR_BYTES, b"\0")


@pytest.mark.parametrize("sector", range(1, 4))
def test_a_sector_with_the_end_of_an_earlier_batch_is_torn_not_damaged(sector: int) -> None:
    harness, file = cut_short()
    replace(file, unsynced(file)[sector], LAST_OF_BATCH)
    harness.power_cut(0, "everything")
    (store,) = harness.open().values()
    assert harness.node.problems == []
    assert set(contents(store)) == set(range(1, MESSAGES + 1))


def test_a_second_footer_that_was_not_written_is_written_again() -> None:
    harness, file = cut_short()
    whole = bytes(file.content)
    # The batch is written up to the end of a page, as its states follow there once more.
    filled = [at for at in unsynced(file) if not any(whole[at : at + SECTOR_BYTES])]
    before = filled[0] - SECTOR_BYTES
    replace(file, filled[0], LAST_OF_BATCH)
    harness.power_cut(0, "everything")
    (store,) = harness.open().values()
    assert harness.node.problems == []
    assert set(contents(store)) == set(range(1, 2 * MESSAGES + 1))
    assert file.content[before : filled[1]] == whole[before : filled[1]]
    store.add_message(b"c", b"third", b"")
    harness.commit()
    harness.power_cut(0, "everything")
    harness.open()
    assert harness.node.problems == []
