"""A wall clock that is set forward ends nothing early."""

import asyncio
from pathlib import Path
from typing import Any

from headwater.edge.broker.account import Account
from headwater.edge.broker.core import Kernel
from headwater.edge.conf.options import JetStreamOptions, Options
from headwater.edge.jetstream.age_watch import AgeWatch
from headwater.edge.jetstream.models import StreamConfig
from headwater.edge.jetstream.node import NodeJetStream

HOUR = 3_600_000_000_000
YEAR = 365 * 24 * HOUR


class Clocks:
    """A wall clock that can be set, and one that only runs."""

    def __init__(self) -> None:
        self.wall_ns = 1_000_000_000
        self.running_ns = 0

    def wall(self) -> int:
        return self.wall_ns

    def running(self) -> int:
        return self.running_ns

    def run(self, ns: int) -> None:
        self.wall_ns += ns
        self.running_ns += ns


class Told:
    """A stream's timers, as the watch sees them."""

    def __init__(self) -> None:
        self.jumps: list[tuple[int, int]] = []

    def clock_set(self, by_ns: int, now_ns: int) -> None:
        self.jumps.append((by_ns, now_ns))


def test_the_watch_tells_of_jumps_only() -> None:
    clocks, told = Clocks(), Told()
    watch = AgeWatch(None, lambda: [told], clocks.wall, clocks.running)
    clocks.run(10 * HOUR)
    assert watch.check() == 0
    clocks.wall_ns -= HOUR
    assert watch.check() == 0
    clocks.wall_ns += 5_000_000_000
    assert watch.check() == 0
    clocks.wall_ns += 50 * YEAR
    assert watch.check() == 50 * YEAR
    assert told.jumps == [(50 * YEAR, clocks.wall_ns)]
    assert watch.check() == 0


def open_node(folder: Path) -> tuple[NodeJetStream, Any]:
    kernel = Kernel(asyncio.get_running_loop())
    account = Account("A", kernel)
    settings = JetStreamOptions(enabled=True, store_dir=str(folder), max_file_store=1 << 24)
    node = NodeJetStream(kernel, Options(jetstream=settings), lambda name: account)
    node.open()
    return node, node.enable(account)


async def test_ages_begin_anew(tmp_path: Path) -> None:
    node, js = open_node(tmp_path)
    config = StreamConfig(name="S", subjects=["s"], max_age=HOUR, allow_msg_ttl=True)
    stream = js.create(config, False)
    # A clock that is a year behind, as of the real one that the store goes by.
    now = node.kernel.clock()
    stream.import_message(b"s", b"NATS/1.0\r\nNats-TTL: 60\r\n\r\n", b"", now - YEAR, 0)
    stream.import_message(b"s", b"", b"", now - YEAR, 0)
    stream.timers.clock_set(YEAR, now)
    stream.timers.on_timer()
    assert stream.store.messages == 2
    await node.shutdown()

    node, js = open_node(tmp_path)
    stream = js.stream("S")
    stream.timers.on_timer()
    await asyncio.sleep(0)
    stream.timers.on_timer()
    assert stream.store.messages == 2
    stream.import_message(b"s", b"", b"", 0, 0)
    await node.shutdown()


async def test_without_a_jump_they_end(tmp_path: Path) -> None:
    node, js = open_node(tmp_path)
    stream = js.create(StreamConfig(name="S", subjects=["s"], max_age=HOUR), False)
    stream.import_message(b"s", b"", b"", node.kernel.clock() - YEAR, 0)
    stream.timers.on_timer()
    assert stream.store.messages == 0
    await node.shutdown()


async def test_a_message_ends_soon_after_its_time(tmp_path: Path) -> None:
    node, js = open_node(tmp_path)
    stream = js.create(StreamConfig(name="S", subjects=["s"], allow_msg_ttl=True), False)
    now = node.kernel.clock()
    # Its time is over right after the clock's next full second: the worst case for rounding.
    due = now - now % 1_000_000_000 + 1_000_000_000 + 10_000_000
    block = b"NATS/1.0\r\nNats-TTL: 60\r\n\r\n"
    stream.import_message(b"s", block, b"", due - 60_000_000_000, 0)
    while node.kernel.clock() < due:
        assert stream.store.messages == 1
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.4)
    assert stream.store.messages == 0
    await node.shutdown()
