"""Consumers outlive a log that is gone, as they were a while ago, and what is known to be newer
counts."""

import pytest

from headwater.edge.ports import files
from headwater.edge.storage.segments.file_store import FileStore
from tests.edge.storage.twin_harness import TwinHarness

KEY = b"consumer/c"


def made(sealed: bool = False) -> tuple[TwinHarness, bytes]:
    """An open store with a stream, the owner of the states."""
    harness = TwinHarness(sealed=sealed)
    harness.open()
    return harness, harness.create().incarnation.encode()


def rest(harness: TwinHarness) -> None:
    """Let the file be written."""
    harness.settle()
    harness.loop.run_until(lambda: harness.node.state_copy.idle)


def without_log(harness: TwinHarness) -> TwinHarness:
    """Remove every slot and open the store again."""
    for path in list((harness.disk.root / "data/jetstream/log").iterdir()):
        files.remove(path)
    after = TwinHarness(harness.disk, sealed=harness.options.keys is not None)
    after.open()
    return after


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("clean", [False, True])
def test_consumers_without_a_log(clean: bool, sealed: bool) -> None:
    harness, owner = made(sealed)
    log = harness.node.log
    log.put_state(owner, KEY, b"whole")
    log.put_state(owner, b"consumer/gone", b"x")
    log.put_state(owner, b"other", b"x")
    log.add_delta(owner, KEY, b"a")
    log.delete_state(owner, b"consumer/gone")
    rest(harness)
    log.add_delta(owner, KEY, b"b")
    harness.commit()
    if clean:
        harness.close()
    else:
        harness.disk.kill()
        harness.loop.drop()
    after = without_log(harness)
    found = after.node.log.states(owner)
    assert found == {KEY: (b"whole", [b"a", b"b"] if clean else [b"a"])}
    assert any("consumer 'c'" in str(each) for each in after.node.problems)
    rest(after)
    after.close()
    later = TwinHarness(after.disk, sealed=sealed)
    later.open()
    assert later.node.log.states(owner) == found
    assert later.node.problems == []
    later.close()


def test_what_the_log_still_has_from_then_on_counts() -> None:
    """A part of the log is gone; what it said behind the copy is there."""
    harness, owner = made()
    log = harness.node.log
    for name in (b"changed", b"removed", b"kept"):
        log.put_state(owner, b"consumer/" + name, b"old")
    rest(harness)
    harness.node.state_copy.stopped = True
    log.begin_next()
    log.put_state(owner, b"consumer/changed", b"new")
    log.delete_state(owner, b"consumer/removed")
    log.add_delta(owner, b"consumer/kept", b"more")
    harness.commit()
    slots = {segment.number: segment.slot.path for segment in log.live}
    harness.disk.kill()
    harness.loop.drop()
    for number in sorted(slots)[:-1]:
        files.remove(slots[number])
    after = TwinHarness(harness.disk)
    after.open()
    found = after.node.log.states(owner)
    assert found == {
        b"consumer/changed": (b"new", []),
        b"consumer/kept": (b"old", [b"more"]),
    }
    after.close()


def test_a_whole_log_needs_no_copy() -> None:
    harness, owner = made()
    log = harness.node.log
    log.put_state(owner, KEY, b"old")
    rest(harness)
    harness.node.state_copy.stopped = True
    log.delete_state(owner, KEY)
    harness.commit()
    harness.disk.kill()
    harness.loop.drop()
    after = TwinHarness(harness.disk)
    after.open()
    assert (after.node.log.states(owner), after.node.problems) == ({}, [])
    after.close()


def test_replicated_streams_are_left_to_their_replicas() -> None:
    harness, owner = made()
    log = harness.node.log
    log.put_state(owner, KEY, b"old")
    log.put_state(owner, b"raft", b"mark")
    rest(harness)
    harness.close()
    after = without_log(harness)
    assert after.node.log.states(owner) == {}
    after.close()


def test_a_damaged_copy_is_told_and_written_again() -> None:
    harness, owner = made()
    harness.node.log.put_state(owner, KEY, b"value")
    rest(harness)
    harness.close()
    path = ("data", "jetstream", "consumers")
    content = bytes(harness.disk.file(path).content)
    harness.disk.spoil(path, 0, bytes(len(content)))
    after = TwinHarness(harness.disk)
    after.open()
    assert any("consumers" in str(text) for text in after.node.problems)
    assert after.node.log.states(owner) == {KEY: (b"value", [])}
    rest(after)
    after.disk.kill()
    after.loop.drop()
    last = without_log(after)
    assert last.node.log.states(owner) == {KEY: (b"value", [])}
    last.close()


def checkpoint(harness: TwinHarness, store: FileStore) -> None:
    """Have one more segment of the log checkpointed."""
    log = harness.node.log
    number = log.active.number
    while log.active.number == number:
        store.add_message(b"s", b"x" * 300, b"")
        harness.commit()
    rest(harness)


def test_a_file_that_would_say_the_same_is_seldom_written() -> None:
    """It spares the device. Behind a log that is gone, numbers of its segments do not come back."""
    harness, owner = made()
    store = harness.streams[owner.decode()]
    log = harness.node.log
    log.put_state(owner, KEY, b"whole")
    path = ("data", "jetstream", "consumers")
    kept = []
    for _ in range(20):
        checkpoint(harness, store)
        kept.append(bytes(harness.disk.file(path).content))
    assert 2 <= len(set(kept)) <= 4
    log.add_delta(owner, KEY, b"a")
    log.put_state(owner, b"consumer/d", b"new")
    rest(harness)
    assert bytes(harness.disk.file(path).content) not in kept
    for _ in range(6):
        checkpoint(harness, store)
    newest = log.active.number
    harness.disk.kill()
    harness.loop.drop()
    files.remove(harness.disk.root / "data/jetstream/tidemarks")
    after = without_log(harness)
    assert after.node.log.active.number > newest
    assert after.node.log.states(owner) == {KEY: (b"whole", [b"a"]), b"consumer/d": (b"new", [])}
    after.close()
