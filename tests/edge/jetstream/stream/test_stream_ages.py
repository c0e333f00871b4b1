"""Ages, whatever the wall clock is set to: on a node with clocks that are set by hand."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.edge.broker.account import Account
from headwater.edge.conf.options import JetStreamOptions, Options
from headwater.edge.jetstream.model.models import StreamConfig
from headwater.edge.jetstream.node.node import NodeJetStream
from headwater.edge.jetstream.stream.age_clock import AgeClock, Clocks, Kept
from headwater.edge.kernel.kernel import Kernel
from tests.waiting import until

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
YEAR = 365 * 24 * HOUR
NOW = 1_790_000_000 * SECOND


class HandClock:
    """A wall clock that can be set, one that only runs, and the name of the boot."""

    def __init__(self, wall: int = NOW) -> None:
        self.wall = wall
        self.running = MINUTE
        self.boot = "first"

    def wall_ns(self) -> int:
        return self.wall

    def monotonic_ns(self) -> int:
        return self.running

    def run(self, ns: int) -> None:
        self.wall += ns
        self.running += ns

    def reboot(self, wall: int) -> None:
        self.wall, self.running, self.boot = wall, SECOND, self.boot + "'"


class Machine:
    """A node that is killed and started again in one directory."""

    def __init__(self, folder: Path, clock: HandClock) -> None:
        self.folder, self.clock = folder, clock
        self.js: Any = None
        self.node: NodeJetStream | None = None
        self.start()

    def start(self) -> None:
        kernel = Kernel(asyncio.get_running_loop(), self.clock)
        account = Account("A", kernel)
        settings = JetStreamOptions(
            enabled=True, store_dir=str(self.folder), max_file_store=1 << 24
        )
        self.node = NodeJetStream(kernel, Options(jetstream=settings), lambda name: account)
        self.node.open()
        self.js = self.node.enable(account)

    def create(self, name: str = "S", **settings: Any) -> Any:
        config = StreamConfig(name=name, subjects=[name.lower()], max_age=HOUR, **settings)
        return self.js.create(config, False)

    async def synced(self) -> None:
        """Everything that was stored is durable."""
        log = self.node.storage.log
        lsn = log.hand_over()
        log.hurry(lsn)
        await log.wait_durable(lsn)

    async def kill(self) -> None:
        await self.synced()
        self.node.close()

    def __getitem__(self, name: str) -> Any:
        """A stream, after everything has ended that is to end by now."""
        self.node.kernel.turn()
        stream = self.js.stream(name)
        stream.timers.on_timer()
        return stream


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Callable[[HandClock], Machine]]:
    made = []

    def begin(clock: HandClock) -> Machine:
        made.append(Machine(tmp_path, clock))
        return made[-1]

    yield begin
    for machine in made:
        machine.node.close()
        await asyncio.sleep(0)


def publish(stream: Any, subject: bytes = b"s", block: bytes = b"") -> int:
    return int(stream.import_message(subject, block, b"x", stream.kernel.clock(), 0))


def kept(stream: Any) -> list[int]:
    store = stream.store
    return [n for n in range(store.first_seq, store.last_seq + 1) if store.get(n) is not None]


def times(stream: Any) -> list[int]:
    return [stream.store.get(n).timestamp for n in kept(stream)]


@pytest.mark.parametrize("killed", [False, True])
async def test_a_boot_in_1970_that_learns_the_time(
    start: Callable[[HandClock], Machine], killed: bool
) -> None:
    clock = HandClock(1000 * SECOND)
    machine = start(clock)
    publish(machine.create())
    clock.run(5 * MINUTE)
    publish(machine["S"])
    if killed:
        await machine.kill()
    clock.wall = NOW
    if killed:
        machine.start()
    assert kept(machine["S"]) == [1, 2]
    publish(machine["S"])
    assert times(machine["S"])[2] == NOW
    clock.run(54 * MINUTE)
    assert kept(machine["S"]) == [1, 2, 3]
    clock.run(2 * MINUTE)
    assert kept(machine["S"]) == [2, 3]
    clock.run(5 * MINUTE)
    assert kept(machine["S"]) == []


async def test_a_store_with_messages_boots_in_1970(
    start: Callable[[HandClock], Machine],
) -> None:
    clock = HandClock()
    machine = start(clock)
    publish(machine.create())
    clock.run(10 * MINUTE)
    publish(machine["S"])
    await machine.kill()
    clock.reboot(SECOND)
    machine.start()
    publish(machine["S"])
    clock.run(5 * MINUTE)
    publish(machine["S"])
    found = times(machine["S"])
    assert found == sorted(found)
    # They go on from the last one, at the speed of time.
    assert found[3] - found[2] == 5 * MINUTE
    clock.wall = NOW + 30 * MINUTE
    assert kept(machine["S"]) == [1, 2, 3, 4]
    publish(machine["S"])
    assert times(machine["S"])[4] == NOW + 30 * MINUTE
    clock.run(46 * MINUTE)
    assert kept(machine["S"]) == [2, 3, 4, 5]
    clock.run(10 * MINUTE)
    assert kept(machine["S"]) == [4, 5]
    await machine.kill()
    machine.start()
    assert kept(machine["S"]) == [4, 5]
    clock.run(5 * MINUTE)
    assert kept(machine["S"]) == []


@pytest.mark.parametrize("killed", [False, True])
async def test_years_ahead_and_back(
    start: Callable[[HandClock], Machine], killed: bool
) -> None:
    clock = HandClock()
    machine = start(clock)
    publish(machine.create())
    for step in (10 * YEAR, -10 * YEAR, -20 * YEAR, 20 * YEAR):
        clock.run(5 * MINUTE)
        if killed:
            await machine.kill()
        clock.wall += step
        if killed:
            machine.start()
        publish(machine["S"])
    assert kept(machine["S"]) == [1, 2, 3, 4, 5]
    found = times(machine["S"])
    assert found == sorted(found)
    for left in (5, 4, 3, 2, 1):
        clock.run(41 * MINUTE if left == 5 else 5 * MINUTE)
        assert kept(machine["S"]) == list(range(7 - left, 6))


async def test_what_came_before_the_step_was_noticed(
    start: Callable[[HandClock], Machine],
) -> None:
    """Neither ended early nor kept for years."""
    clock = HandClock(1000 * SECOND)
    machine = start(clock)
    stream = machine.create()
    publish(stream)
    machine.node.kernel.clock_watch = None
    clock.wall = NOW
    publish(stream)
    machine.node.age_watch.start()
    assert kept(machine["S"]) == [1, 2]
    clock.run(HOUR + SECOND)
    assert kept(machine["S"]) == []


@pytest.mark.parametrize("step", [10 * YEAR, -10 * YEAR])
@pytest.mark.parametrize("killed", [False, True])
async def test_ttls_and_duplicates(
    start: Callable[[HandClock], Machine], step: int, killed: bool
) -> None:
    clock = HandClock()
    machine = start(clock)
    block = b"NATS/1.0\r\nNats-TTL: 60\r\nNats-Msg-Id: one\r\n\r\n"
    stream = machine.create(allow_msg_ttl=True, duplicate_window=2 * MINUTE)
    publish(stream, b"s", block)
    stream.dedupe.remember(b"one", 1, stream.timers.now())
    await machine.kill()
    if not killed:
        machine.start()
    clock.run(30 * SECOND)
    clock.wall += step
    if killed:
        machine.start()
    await asyncio.sleep(0)  # what was stored with a TTL is looked for right after the start
    stream = machine["S"]
    if not stream.dedupe.loaded:
        stream.load_ids()
    assert kept(stream) == [1]
    assert stream.dedupe.sequence_of(b"one", stream.timers.now()) == 1
    clock.run(31 * SECOND)
    assert kept(machine["S"]) == []
    assert stream.dedupe.sequence_of(b"one", stream.timers.now()) == 1
    clock.run(MINUTE)
    assert stream.dedupe.sequence_of(b"one", stream.timers.now()) == 0


async def test_a_step_that_is_taken_back_is_forgotten(
    start: Callable[[HandClock], Machine],
) -> None:
    """What comes after two steps that cancel each other out is as young after a start as before."""
    clock = HandClock()
    machine = start(clock)
    publish(machine.create())
    for step in (10 * YEAR, -10 * YEAR):
        clock.run(SECOND)
        clock.wall += step
        assert kept(machine["S"]) == [1]
    publish(machine["S"])
    machine["S"].delete_message(1, False)
    await machine.kill()
    machine.start()
    assert kept(machine["S"]) == [2]


async def test_ids_from_before_a_step_are_known_after_a_start(
    start: Callable[[HandClock], Machine],
) -> None:
    """Although the first message after the step is gone."""
    clock = HandClock()
    machine = start(clock)
    stream = machine.create(duplicate_window=2 * MINUTE)
    publish(stream, b"s", b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n")
    clock.run(SECOND)
    clock.wall += 10 * YEAR
    stream = machine["S"]
    publish(stream)
    publish(stream)
    stream.delete_message(2, False)
    await machine.kill()
    machine.start()
    stream = machine["S"]
    stream.load_ids()
    assert kept(stream) == [1, 3]
    assert stream.dedupe.sequence_of(b"one", stream.timers.now()) == 1


@pytest.mark.parametrize("step", [10 * YEAR, -10 * YEAR])
async def test_a_mirrors_messages_have_the_time_of_their_origin(
    start: Callable[[HandClock], Machine], step: int
) -> None:
    clock = HandClock()
    machine = start(clock)
    stream = machine.create()
    stream.is_mirror = True
    stream.import_message(b"s", b"", b"x", NOW, 1)
    clock.wall += step
    stream.import_message(b"s", b"", b"x", NOW + MINUTE, 2)
    assert times(machine["S"]) == [NOW, NOW + MINUTE]
    clock.wall -= step
    clock.run(30 * MINUTE)
    assert times(machine["S"]) == [NOW, NOW + MINUTE]
    clock.run(31 * MINUTE)
    assert times(machine["S"]) == []


async def test_a_mirror_boots_in_1970(start: Callable[[HandClock], Machine]) -> None:
    clock = HandClock(SECOND)
    stream = start(clock).create()
    stream.is_mirror = True
    stream.import_message(b"s", b"", b"x", NOW, 1)
    stream.timers.on_timer()
    clock.run(MINUTE)
    clock.wall = NOW + 30 * MINUTE
    stream.kernel.turn()
    stream.timers.on_timer()
    assert kept(stream) == [1]
    clock.run(31 * MINUTE)
    stream.timers.on_timer()
    assert kept(stream) == []


async def test_schedules(start: Callable[[HandClock], Machine]) -> None:
    """Intervals go on; times of day are those that the clock shows."""
    clock = HandClock()
    machine = start(clock)
    stream = machine.create(allow_msg_schedules=True)
    block = b"NATS/1.0\r\nNats-Schedule: @every 10m\r\nNats-Schedule-Target: s\r\n\r\n"
    publish(stream, b"s.plan", block)
    for step in (10 * YEAR, -30 * YEAR, 20 * YEAR):
        clock.wall += step
        machine["S"].schedules.on_timer()
        _, due = stream.schedules.by_subject[b"s.plan"]
        assert abs(due - clock.wall - 10 * MINUTE) <= SECOND
    assert kept(stream) == [1]
    clock.run(10 * MINUTE + SECOND)
    machine["S"].schedules.on_timer()
    assert kept(stream) == [1, 2]


async def test_without_a_step_they_end(start: Callable[[HandClock], Machine]) -> None:
    clock = HandClock()
    machine = start(clock)
    publish(machine.create())
    await machine.kill()
    clock.run(59 * MINUTE)
    machine.start()
    assert kept(machine["S"]) == [1]
    await machine.kill()
    clock.reboot(clock.wall + 2 * MINUTE)
    machine.start()
    assert kept(machine["S"]) == []


def watched(clock: HandClock, found: Kept | None = None, newest: int = 0) -> AgeClock:
    clocks = Clocks(clock.wall_ns, clock.monotonic_ns, clock.boot)
    return AgeClock(clocks, found, lambda: newest)


def test_small_steps_are_no_steps() -> None:
    clock = HandClock()
    ages = watched(clock)
    for step, seen in ((900_000_000, 0), (-900_000_000, 0), (HOUR, HOUR), (-YEAR, -YEAR)):
        clock.run(HOUR)
        clock.wall += step
        assert ages.look() == seen
    assert ages.offset == HOUR - YEAR
    assert ages.look() == 0


def test_a_restart_within_one_boot() -> None:
    clock = HandClock()
    before = watched(clock).kept
    for step in (0, YEAR, -YEAR):
        clock.run(HOUR)
        clock.wall += step
        after = watched(clock, before)
        # The clock that only runs tells how much time passed, but an hour of it did not.
        assert clock.wall - after.offset == NOW + (clock.running - MINUTE)
    clock.running += YEAR
    assert clock.wall - watched(clock, before).offset == clock.wall


def test_a_restart_after_another_boot() -> None:
    clock = HandClock()
    before = watched(clock).kept
    clock.reboot(NOW + 20 * 24 * HOUR)
    assert watched(clock, before).offset == 0
    clock.reboot(NOW + 10 * YEAR)
    assert clock.wall - watched(clock, before).offset == NOW
    clock.reboot(SECOND)
    assert clock.wall - watched(clock, before).offset == NOW
    assert clock.wall - watched(clock, before, NOW + HOUR).offset == NOW + HOUR


async def test_a_message_ends_soon_after_its_time(tmp_path: Path) -> None:
    """On the machine's clocks."""
    kernel = Kernel(asyncio.get_running_loop())
    account = Account("A", kernel)
    settings = JetStreamOptions(enabled=True, store_dir=str(tmp_path), max_file_store=1 << 24)
    node = NodeJetStream(kernel, Options(jetstream=settings), lambda name: account)
    node.open()
    js = node.enable(account)
    stream = js.create(StreamConfig(name="S", subjects=["s"], allow_msg_ttl=True), False)
    now = node.kernel.clock()
    # Its time is over right after the clock's next full second: the worst case for rounding.
    due = now - now % 1_000_000_000 + 1_000_000_000 + 10_000_000
    block = b"NATS/1.0\r\nNats-TTL: 60\r\n\r\n"
    stream.import_message(b"s", block, b"", due - 60_000_000_000, 0)
    ended: list[int] = []

    def empty() -> bool:
        ended.append(node.kernel.clock())
        return not stream.store.messages

    await until(empty)
    assert due <= ended[-1] < due + 900_000_000  # a full second would be the clock's
    await node.shutdown()
