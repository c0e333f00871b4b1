"""The lines of docs/DURABILITY.md that a disk in memory can show: what each durability keeps when
the power is cut, the disk lies, a sync fails, the device is full, or a bit flips."""

import errno
import os

import pytest

from headwater.edge.storage.format.durability import Durability
from headwater.edge.storage.format.errors import StoreError, StoreFailed, StoreFull
from headwater.edge.storage.index.store import MessageStore
from tests.edge.storage.twin_harness import Row, TwinHarness, contents

DURABLE = {
    "fsync": Durability(),
    "max_delay": Durability(seconds=0.05),
    "interval": Durability(interval=True, seconds=30.0),
}
SETTINGS = (*DURABLE, "memory")
BEFORE, AFTER = 30, 40
"""Messages that are certainly synced, and those after them."""


class Machine:
    """A node with one stream, publishing one message after the other."""

    def __init__(self, setting: str) -> None:
        self.setting = setting
        self.harness = TwinHarness(segment_bytes=65536)
        self.harness.open()
        self.sent: dict[int, Row] = {}
        node = self.harness.node
        if setting == "memory":
            self.store: MessageStore = node.create_stream("A", "S", b"", "memory")
        else:
            self.store = self.harness.create()
            node.set_durability(self.store, DURABLE[setting])
            self.harness.commit()

    def publish(self, count: int, acks: bool = True) -> None:
        """`acks`: each waits for its ack."""
        loop = self.harness.loop
        for _ in range(count):
            row = (b"a.%d" % (len(self.sent) % 3), b"", b"message %06d" % len(self.sent) * 6)
            sequence = self.store.add_message(row[0], row[2])
            self.sent[sequence] = row
            self.harness.kernel.turn()
            if acks:
                loop.run_until(lambda at=sequence: self.store.committed >= at)  # type: ignore[misc]

    def synced(self) -> None:
        """Everything is on the device."""
        if self.setting != "memory":
            self.harness.commit()

    def acked(self) -> dict[int, Row]:
        return {at: row for at, row in self.sent.items() if at <= self.store.committed}

    def restart(self) -> dict[int, Row]:
        """What is there after a start; the sequences given out next are new ones."""
        found = self.harness.open()
        if self.setting == "memory":
            assert found == {}
            return {}
        (self.store,) = found.values()
        return contents(self.store)

    def goes_on_at_a_new_sequence(self, acked: dict[int, Row]) -> bool:
        return self.store.add_message(b"next", b"") > max(acked)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("lose", ["everything", "some"])
def test_power_cut(setting: str, lose: str) -> None:
    for seed in range(4):
        machine = Machine(setting)
        machine.publish(BEFORE)
        machine.synced()
        machine.publish(AFTER + seed)
        acked = machine.acked()
        assert len(acked) == BEFORE + AFTER + seed
        machine.harness.power_cut(seed, lose)
        found = machine.restart()
        if setting == "memory":
            continue
        least = BEFORE if setting == "interval" else len(acked)
        assert list(found) == list(range(1, len(found) + 1)), "a prefix"
        assert len(found) >= least
        assert found == {at: acked[at] for at in found}
        assert machine.store.lost == {}
        assert machine.goes_on_at_a_new_sequence(acked)
        if len(found) < len(acked) or setting == "interval":
            assert "may have taken acknowledged" in str(machine.harness.node.problems[0])
        else:
            assert machine.harness.node.problems == []


@pytest.mark.parametrize("setting", SETTINGS)
def test_lying_disk(setting: str) -> None:
    machine = Machine(setting)
    machine.publish(BEFORE)
    machine.synced()
    machine.harness.loop.run_until(lambda: machine.harness.node.metas.idle)
    machine.harness.disk.sync_all()
    machine.harness.disk.lying = True
    machine.publish(AFTER)
    acked = machine.acked()
    assert len(acked) == BEFORE + AFTER
    machine.harness.power_cut(3, "everything")
    found = machine.restart()
    if setting == "memory":
        return
    assert BEFORE <= len(found) < len(acked), "the disk lied"
    assert list(found) == list(range(1, len(found) + 1)), "a prefix"
    assert found == {at: acked[at] for at in found}
    if setting == "interval":
        assert machine.goes_on_at_a_new_sequence(acked)


@pytest.mark.parametrize("setting", SETTINGS)
def test_failed_sync(setting: str) -> None:
    machine = Machine(setting)
    harness, loop = machine.harness, machine.harness.loop
    machine.publish(BEFORE)
    machine.synced()
    failing = True

    def watch(what: str, path: str) -> None:
        if failing and what == "sync":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    harness.disk.watch = watch
    machine.publish(10, acks=setting in ("interval", "memory"))
    if setting == "memory":
        assert len(machine.acked()) == BEFORE + 10
        return
    loop.call_later(60.0, int)
    loop.run_until(lambda: machine.store.failure is not None)
    assert len(machine.acked()) == BEFORE + (10 if setting == "interval" else 0)
    with pytest.raises(StoreFailed):
        machine.publish(1)
    failing = False
    loop.run_until(lambda: machine.store.failure is None)
    acked = machine.acked()
    assert len(acked) == BEFORE + 10
    harness.power_cut(0, "everything")
    assert machine.restart() == acked


def test_a_device_that_stays_read_only_is_told_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine("fsync")
    harness, loop = machine.harness, machine.harness.loop
    machine.publish(BEFORE)
    machine.synced()
    writable = False

    def watch(what: str, path: str) -> None:
        if not writable:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    harness.disk.watch = watch
    machine.publish(10, acks=False)
    minutes: list[int] = []
    for minute in range(3):
        loop.call_later(60.0 * (minute + 1), minutes.append, minute)
    loop.run_until(lambda: len(minutes) == 3)
    said = [record for record in caplog.records if "still has no file" in record.getMessage()]
    assert len(said) in (3, 4)
    writable = True
    loop.run_until(lambda: machine.store.failure is None)
    assert len(machine.acked()) == BEFORE + 10


@pytest.mark.parametrize("setting", SETTINGS)
def test_full_disk(setting: str) -> None:
    machine = Machine(setting)
    harness = machine.harness
    machine.publish(BEFORE)
    harness.disk.capacity = harness.disk.used
    if setting == "memory":
        machine.publish(1000)
        assert len(machine.acked()) == BEFORE + 1000
        return
    with pytest.raises(StoreFull):
        machine.publish(20_000)
    acked = machine.acked()
    assert len(acked) == len(machine.sent), "what was not refused is acknowledged"
    assert contents(machine.store) == acked, "reads go on"
    harness.disk.capacity = 0
    harness.loop.run_until(lambda: machine.store.failure is None)
    machine.publish(1)
    machine.synced()
    acked = machine.acked()
    harness.power_cut(0, "everything")
    assert machine.restart() == acked


@pytest.mark.parametrize("setting", SETTINGS)
def test_bit_rot(setting: str) -> None:
    machine = Machine(setting)
    disk = machine.harness.disk
    operations = disk.operations
    machine.publish(BEFORE)
    if setting == "memory":
        assert disk.operations == operations, "nothing is on disk that could rot"
        return
    machine.harness.loop.drop()
    disk.kill()
    for at in (3, BEFORE):
        text = machine.sent[at][2]
        parts, offset = next(
            (parts, bytes(file.content).find(text))
            for parts, file in disk.walk()
            if text in bytes(file.content)
        )
        disk.flip(parts, offset + 7, 3)
    found = machine.restart()
    assert found == {at: row for at, row in machine.sent.items() if at not in (3, BEFORE)}
    assert set(machine.store.lost) == {3, BEFORE}
    assert machine.harness.node.problems
    with pytest.raises(StoreError):
        machine.store.get(3)
    assert machine.goes_on_at_a_new_sequence(machine.sent)
