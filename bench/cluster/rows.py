"""What is measured of a cluster: each row drives one that runs, and gives figures by name.

Publishers and consumers of throughput rows are connected to the node that leads the stream, and
written in C (`bench.loadgen`). Gaps are what clients see: three of them, one on each node, publish
at a steady pace whether or not they are answered.
"""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError

from bench import build, patterns
from bench.cluster.nodes import ClusterNodes, ask, insist, leader_of, whole
from bench.patterns import STREAM, Load
from bench.servers import ServerFailed
from bench.wire import Link

SUBJECTS = "bench.js.>"
PROBE_SUBJECT = "bench.js.probe"
PROBE_SECONDS = 0.01
"""Between two publishes of each client that looks for gaps."""
PROBE_PATIENCE = 12.0
"""That such a publish may take; longer than the longest gap that is known."""
SETTLE_SECONDS = 2.0
ASKED_AT_A_TIME = 50
ANSWER_SECONDS = 2.0
LEADERS_SECONDS = 300.0
REMADE_SECONDS = 600.0
LEFT_SECONDS = 150.0
TICKS = os.sysconf("SC_CLK_TCK")

Figures = dict[str, float]


@dataclass(frozen=True)
class Amounts:
    """How much each row does."""

    messages: int = 300_000
    """Of the window rows and the consumer."""
    synced: int = 15_000
    """Of the window rows, where each message is synced."""
    publishers: int = 64
    waits: int = 300
    """Publishes of each synchronous publisher."""
    streams: int = 1000
    watch: float = 10.0
    """Seconds for which idle nodes are watched."""
    remade: int = 2_000_000
    behind: int = 500_000
    """Messages of 1 KiB while a follower stands still."""
    seconds: float = 30.0
    """At most, for one throughput row."""

    @property
    def load(self) -> Load:
        """For the patterns of one server."""
        return Load(self.messages, self.seconds, 60.0)


@dataclass(frozen=True)
class Port:
    """A node, as the patterns see it."""

    port: int


async def fresh(nodes: ClusterNodes, replicas: int = 3, name: str = STREAM, **more: Any) -> Port:
    """An empty stream; returns the node that leads it."""
    client = await nodes.client()
    try:
        await insist(client, f"STREAM.DELETE.{name}")
        config = {"name": name, "subjects": [SUBJECTS], "num_replicas": replicas, **more}
        made = await insist(client, f"STREAM.CREATE.{name}", **config)
        if "error" in made:
            raise ServerFailed(f"{nodes.recipe.name}: {made['error']}")
        where = await whole(client, name) if replicas > 1 else await leader_of(client, name)
    finally:
        await client.close()
    return Port(nodes.ports[where])


# -- throughput ----------------------------------------------------------------


async def window(nodes: ClusterNodes, amounts: Amounts, size: int) -> Figures:
    """One publisher, `patterns.WINDOW` messages not acknowledged."""
    port = await fresh(nodes)
    messages = amounts.synced if nodes.recipe.synced else amounts.messages
    load = Load(messages, amounts.seconds, 60.0)
    figure = await asyncio.to_thread(patterns.fill, port, load, size)
    return {f"window-{size}": figure.rate}


async def waiting(nodes: ClusterNodes, amounts: Amounts) -> Figures:
    """Many publishers, each waits for its acknowledgement."""
    port = await fresh(nodes)
    links = [Link(port.port, 60.0) for _ in range(amounts.publishers)]
    done: list[int] = []
    errors: list[Exception] = []
    generator = build.generator()

    def publish(number: int, link: Link) -> None:
        inbox = f"_INBOX.waiting.{number}"
        link.subscribe(inbox, "3")
        frame = f"PUB bench.js.{number:02d} {inbox} 128\r\n".encode() + b"x" * 128 + b"\r\n"
        try:
            samples, _ = generator.publish_sync(link.fd, frame, amounts.waits, amounts.load.cap_ns)
            done.append(len(samples))
        except generator.LoadError as error:
            errors.append(error)

    threads = [threading.Thread(target=publish, args=each) for each in enumerate(links)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    seconds = time.monotonic() - begin
    for link in links:
        link.close()
    if errors:
        raise errors[0]
    return {"waiting": sum(done) / seconds}


async def consumer(nodes: ClusterNodes, amounts: Amounts) -> Figures:
    """A pull consumer of three replicas takes a stream and acknowledges each message."""
    port = await fresh(nodes)
    messages = amounts.synced if nodes.recipe.synced else amounts.messages
    load = Load(messages, amounts.seconds, 60.0)

    def work() -> float:
        stored = patterns.fill(port, load, 128).messages
        with Link(port.port, 60.0) as link:
            count, total = patterns.take_pull(link, load, stored, low=0, ack=True)
        if count < stored and total < load.cap_ns:
            raise ServerFailed(f"{nodes.recipe.name}: {count} of {stored} messages")
        return patterns.rate(count, total).rate

    return {"consumer": await asyncio.to_thread(work)}


# -- many streams --------------------------------------------------------------


async def idle(nodes: ClusterNodes, amounts: Amounts) -> Figures:
    """Many streams that nobody uses: processor, memory, and the time to their leaders after a
    start of all nodes."""
    client = await nodes.client()
    names = [f"IDLE-{number}" for number in range(amounts.streams)]
    begin = time.monotonic()
    gate = asyncio.Semaphore(ASKED_AT_A_TIME)

    async def make(name: str) -> None:
        async with gate:
            config = {"name": name, "subjects": [f"idle.{name}"], "num_replicas": 3}
            await insist(client, f"STREAM.CREATE.{name}", LEADERS_SECONDS, **config)

    await asyncio.gather(*map(make, names))
    await all_led(client, names)
    made = time.monotonic() - begin
    await asyncio.sleep(amounts.watch)
    before = processor_seconds(nodes)
    await asyncio.sleep(amounts.watch)
    used = (processor_seconds(nodes) - before) / amounts.watch
    memory = sum(resident(nodes, index) for index in range(nodes.size))
    await client.close()
    await asyncio.gather(*(asyncio.to_thread(nodes.stop, index) for index in range(nodes.size)))
    begin = time.monotonic()
    nodes.start_all()
    await nodes.ready(LEADERS_SECONDS)
    client = await nodes.client()
    await all_led(client, names)
    led = time.monotonic() - begin
    await client.close()
    return {"idle-made": made, "idle-cpu": used * 100, "idle-memory": memory, "idle-led": led}


async def all_led(client: Client, names: list[str]) -> None:
    """Return when every stream has a leader. Raises TimeoutError."""
    gate = asyncio.Semaphore(ASKED_AT_A_TIME)
    waiting = set(names)

    async def look(name: str) -> None:
        with contextlib.suppress(NatsError, JetStreamError):
            async with gate:
                info = await ask(client, f"STREAM.INFO.{name}", ANSWER_SECONDS)
            if info.get("cluster", {}).get("leader"):
                waiting.discard(name)

    async with asyncio.timeout(LEADERS_SECONDS):
        while waiting:
            await asyncio.gather(*map(look, list(waiting)))


def processor_seconds(nodes: ClusterNodes) -> float:
    """What all nodes have used since they run."""
    found = 0.0
    for index in range(nodes.size):
        with open(f"/proc/{nodes.pid(index)}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        found += (int(fields[11]) + int(fields[12])) / TICKS
    return found


def resident(nodes: ClusterNodes, index: int) -> float:
    """MiB that a node has in memory."""
    with open(f"/proc/{nodes.pid(index)}/statm") as file:
        pages = int(file.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


# -- gaps ------------------------------------------------------------------------


class Probe:
    """Publishes at a steady pace on every node, and notes when acknowledgements come."""

    def __init__(self, nodes: ClusterNodes) -> None:
        self.nodes = nodes
        self.last = 0.0
        self.gap = 0.0
        """The longest time without an acknowledgement of any of them, in seconds."""
        self.clients: list[Client] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin, and wait until acknowledgements come."""
        for index in range(self.nodes.size):
            client = await self.nodes.client(index, reconnect_time_wait=0.05)
            self.clients.append(client)
            self._loops.append(asyncio.ensure_future(self._pace(client)))
        async with asyncio.timeout(SETTLE_SECONDS + PROBE_PATIENCE):
            while not self.last:
                await asyncio.sleep(PROBE_SECONDS)
        await asyncio.sleep(SETTLE_SECONDS)
        self.gap = 0.0

    async def _pace(self, client: Client) -> None:
        while True:
            task = asyncio.ensure_future(self._publish(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(PROBE_SECONDS)

    async def _publish(self, client: Client) -> None:
        with contextlib.suppress(NatsError, JetStreamError, OSError):
            answer = await client.request(PROBE_SUBJECT, b"x", timeout=PROBE_PATIENCE)
            if b'"error"' in answer.data:
                return
            now = time.monotonic()
            if self.last:
                self.gap = max(self.gap, now - self.last)
            self.last = now

    async def settle(self) -> float:
        """Wait until acknowledgements come again and go on coming; returns the longest gap.

        What came before the fault may be read behind it. So they must also come to the end.
        """
        async with asyncio.timeout(2 * SETTLE_SECONDS + 3 * PROBE_PATIENCE):
            while True:
                begin = time.monotonic()
                while self.last < begin:
                    await asyncio.sleep(PROBE_SECONDS)
                await asyncio.sleep(SETTLE_SECONDS)
                if self.last >= time.monotonic() - SETTLE_SECONDS / 2:
                    return self.gap

    async def close(self) -> None:
        """End everything."""
        for task in (*self._loops, *self._tasks):
            task.cancel()
        await asyncio.gather(*self._loops, *self._tasks, return_exceptions=True)
        for client in self.clients:
            with contextlib.suppress(NatsError, TimeoutError, OSError):
                async with asyncio.timeout(2):
                    await client.close()


async def _gap(
    nodes: ClusterNodes, name: str, fault: Callable[[Client], Awaitable[None]]
) -> Figures:
    """Probe while `fault` happens."""
    await fresh(nodes)
    probe = Probe(nodes)
    watcher = await nodes.client(1)
    try:
        await probe.start()
        await fault(watcher)
        gap = await probe.settle()
    finally:
        await probe.close()
        await watcher.close()
    return {name: gap}


async def killed(nodes: ClusterNodes, amounts: Amounts) -> Figures:
    """kill -9 of the stream's leader; it comes back afterwards."""
    victim = -1

    async def fault(watcher: Client) -> None:
        nonlocal victim
        victim = await leader_of(watcher, STREAM)
        nodes.kill(victim)

    found = await _gap(nodes, "gap-kill", fault)
    nodes.start(victim)
    await _whole_again(nodes)
    return found


async def stepped_down(nodes: ClusterNodes, amounts: Amounts) -> Figures:
    """The leader is asked to hand over."""

    async def fault(watcher: Client) -> None:
        await insist(watcher, f"STREAM.LEADER.STEPDOWN.{STREAM}")

    return await _gap(nodes, "gap-step-down", fault)


async def lame_duck(nodes: ClusterNodes, amounts: Amounts) -> Figures:
    """The leader's node leaves by lame duck, and comes back afterwards."""
    victim = -1

    async def fault(watcher: Client) -> None:
        nonlocal victim
        victim = await leader_of(watcher, STREAM)
        await asyncio.to_thread(nodes.leave, victim, LEFT_SECONDS)

    found = await _gap(nodes, "gap-lame-duck", fault)
    nodes.start(victim)
    await _whole_again(nodes)
    return found


async def rolling(nodes: ClusterNodes, amounts: Amounts) -> Figures:
    """Each node in turn leaves by lame duck and comes back."""

    async def fault(watcher: Client) -> None:
        for index in range(nodes.size):
            await asyncio.to_thread(nodes.leave, index, LEFT_SECONDS)
            nodes.start(index)
            await _whole_again(nodes)

    return await _gap(nodes, "gap-rolling", fault)


async def _whole_again(nodes: ClusterNodes) -> None:
    await nodes.ready()
    client = await nodes.client()
    await whole(client, STREAM)
    await client.close()


# -- a follower that is made again -------------------------------------------------


async def remade(nodes: ClusterNodes, amounts: Amounts) -> Figures:
    """A follower's disk is wiped; how long until it has everything again."""
    port = await fresh(nodes)
    load = Load(amounts.remade, 600.0, 60.0)
    await asyncio.to_thread(patterns.fill, port, load, 128)
    leader = nodes.ports.index(port.port)
    victim = (leader + 1) % nodes.size
    nodes.kill(victim)
    nodes.wipe(victim)
    client = await nodes.client(leader)
    try:
        # What it lacks besides is sure to be seen: nobody takes it for current any more.
        await client.jetstream().publish(PROBE_SUBJECT, b"x", timeout=PROBE_PATIENCE)
        begin = time.monotonic()
        nodes.start(victim)
        await whole(client, STREAM, REMADE_SECONDS)
        return {"remade": time.monotonic() - begin}
    finally:
        await client.close()


async def behind(nodes: ClusterNodes, amounts: Amounts) -> Figures:
    """A follower stands still while a stream is filled: what that costs its leader in memory, and
    how long until the follower has everything."""
    port = await fresh(nodes)
    messages = amounts.synced if nodes.recipe.synced else amounts.behind
    leader = nodes.ports.index(port.port)
    follower = (leader + 1) % nodes.size
    client = await nodes.client(leader)
    try:
        await whole(client, STREAM)
        before = resident(nodes, leader)
        nodes.signal(follower, signal.SIGSTOP)
        await asyncio.to_thread(patterns.fill, port, Load(messages, 600.0, 60.0), 1024)
        grown = resident(nodes, leader) - before
        # What it lacks besides is sure to be seen: nobody takes it for current any more.
        await client.jetstream().publish(PROBE_SUBJECT, b"x", timeout=PROBE_PATIENCE)
        begin = time.monotonic()
        nodes.signal(follower, signal.SIGCONT)
        await whole(client, STREAM, REMADE_SECONDS)
        return {"behind-memory": grown, "behind": time.monotonic() - begin}
    finally:
        await client.close()


# -- several nodes, all cores --------------------------------------------------------


async def spread(nodes: ClusterNodes, amounts: Amounts, streams: int) -> Figures:
    """Streams of one replica, each with a publisher at its leader."""
    ports = []
    for number in range(streams):
        name = f"SPREAD-{number}"
        more = {"placement": {"tags": [f"az:{number % nodes.size}"]}} if nodes.size > 1 else {}
        ports.append(await fresh(nodes, 1, name, subjects=[f"spread.{number}"], **more))
    generator = build.generator()
    load = amounts.load
    per_write, rates, errors = patterns.JS_PER_WRITE, list[int](), list[Exception]()

    def publish(number: int) -> None:
        inbox = f"_INBOX.spread.{number}"
        frame = f"PUB spread.{number} {inbox} 128\r\n".encode() + b"x" * 128 + b"\r\n"
        total = patterns.whole(load.messages // streams, per_write)
        with Link(ports[number].port, 60.0) as link:
            link.subscribe(inbox, "3")
            try:
                acked, _, _ = generator.publish_window(
                    link.fd, frame * per_write, len(frame), per_write, total,
                    patterns.WINDOW, load.cap_ns,
                )  # fmt: skip
                rates.append(acked)
            except generator.LoadError as error:
                errors.append(error)

    seconds = await _together(publish, streams, errors)
    return {"spread": sum(rates) / seconds}


async def pairs(nodes: ClusterNodes, amounts: Amounts, count: int) -> Figures:
    """One publisher to one subscriber, several times at once, each pair at another node."""
    errors: list[Exception] = []
    sent: list[int] = []
    load = Load(amounts.messages * 2, amounts.seconds, 60.0)

    def work(number: int) -> None:
        port = Port(nodes.ports[number % nodes.size])
        try:
            figure = patterns.core_publish(
                port, load, size=128, receivers=1, subject=f"bench.pair.{number}"
            )
            sent.append(figure.messages)
        except Exception as error:
            errors.append(error)

    seconds = await _together(work, count, errors)
    return {"pairs": sum(sent) / seconds}


async def _together(work: Callable[[int], None], count: int, errors: list[Exception]) -> float:
    """Run `work` in threads; returns seconds."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    if errors:
        raise errors[0]
    return time.monotonic() - begin


Row = Callable[[ClusterNodes, Amounts], Awaitable[Figures]]

ROWS: dict[str, Row] = {
    "window-128": partial(window, size=128),
    "window-1024": partial(window, size=1024),
    "waiting": waiting,
    "consumer": consumer,
    "gap-kill": killed,
    "gap-step-down": stepped_down,
    "gap-lame-duck": lame_duck,
    "gap-rolling": rolling,
    "remade": remade,
    "behind": behind,
    "idle": idle,
}
"""Rows of three nodes."""

ALL_CORES: dict[str, Callable[[ClusterNodes, Amounts, int], Awaitable[Figures]]] = {
    "spread": spread,
    "pairs": pairs,
}
"""Rows of several nodes of ours beside one nats-server."""
