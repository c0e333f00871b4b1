"""`python -m bench.cluster.faults`: clusters of three under publishers and consumers, and faults.

The same scripts run against three `headwater serve` and three nats-servers: each with a stream of
three replicas, publishers that send again what was not acknowledged, consumers that confirm, and on
each node a reader that gets the last message directly. At the end every acknowledged message must
be there once, and none come again that was confirmed. What a reader gets is never older than what
was acknowledged, or read by anybody, before it asked.
"""

import asyncio
import contextlib
import itertools
import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError

from bench.cluster.namespaces import Namespaces, NoNamespaces
from bench.cluster.nodes import SERVERS, ClusterNodes, insist, leader_of, whole
from bench.faults.device import small_device
from bench.faults.filling import take, take_the_rest
from bench.faults.flips import damage
from bench.servers import ServerFailed, end_on_sigterm

STREAM, SUBJECT, DURABLE = "FAULTS", "faults.a", "worker"
TRY_SECONDS = 1.0
GET_SECONDS = 5.0
"""That clients wait for the answer to a direct get."""
ACK_WAIT_NS = 30 * 10**9
PACE_SECONDS = 0.002
SETTLE_SECONDS = 1.0
"""Of undisturbed work before a fault, and while a node is gone."""
DRAIN_SECONDS = 60.0
LEAD_SECONDS = 30.0
DEVICE_MEBIBYTES = 64
HUNGRY_SECONDS = 0.01
"""How often somebody else takes what room there is."""
TRIES = 20
ACK_AGAIN_SECONDS = 0.5
"""Before an ack is sent again; all tries together outlast a leader's absence."""
TITLES = (
    "fault",
    "server",
    "rounds",
    "acked",
    "lost",
    "repeated",
    "handed out again",
    "replicas differ",
    "gap in acks, s",
    "longest wait, s",
    "gets",
    "old gets",
    "gap in gets, s",
)


@dataclass
class Outcome:
    """What one script found out about one server."""

    fault: str
    server: str
    rounds: int = 0
    acked: int = 0
    lost: int = 0
    """Acknowledged, and not there."""
    repeated: int = 0
    """There more than once, or another message than was acknowledged."""
    again: int = 0
    """Handed out by the consumer after its ack was confirmed."""
    differ: int = 0
    """Sequences at which replicas hold different messages, read under each leader in turn."""
    gap: float = 0.0
    """Longest time without an ack for any publisher, in seconds, while all of them publish."""
    wait: float = 0.0
    """Longest time that one publisher waited for the ack of one message, in seconds. One whose node
    is cut off waits until its own TCP sends again, which may be long after the link is whole."""

    gets: int = 0
    """Direct gets that were answered with a message, of readers on all nodes."""
    old: int = 0
    """Of these: older than what was acknowledged or read before they were asked for."""
    get_gap: float = 0.0
    """Longest time that one reader got nothing, in seconds."""

    @property
    def broken(self) -> int:
        """Promises that were not kept."""
        return self.lost + self.repeated + self.again + self.differ + self.old

    def row(self) -> list[str]:
        """What `TITLES` name."""
        counts = (self.rounds, self.acked, self.lost, self.repeated, self.again, self.differ)
        row = [self.fault, self.server, *(f"{count:,}" for count in counts), f"{self.gap:.1f}"]
        row.append(f"{self.wait:.1f}")
        return [*row, f"{self.gets:,}", f"{self.old:,}", f"{self.get_gap:.1f}"]


class Load:
    """Publishers and consumers of one stream, and the book of what they were told."""

    def __init__(self, nodes: ClusterNodes, publishers: int, consumers: int) -> None:
        self.nodes = nodes
        self.sizes = publishers, consumers
        self.acked: dict[int, str] = {}
        self.twice = 0
        """Sequences that were given to two messages."""
        self.confirmed: dict[int, float] = {}
        """When the ack of a message was confirmed."""
        self.again = 0
        self.gap = self.wait = 0.0
        self.newest = 0
        """The last sequence that anybody was told of."""
        self.gets = self.old = 0
        self.get_gap = 0.0
        self.halt = asyncio.Event()
        self.drained = asyncio.Event()
        self.clients: list[Client] = []
        self._last = 0.0
        self._ids = itertools.count()
        self._publishers: list[asyncio.Task[None]] = []
        self._consumers: list[asyncio.Task[None]] = []

    async def client(self, first: int) -> Client:
        """One that reconnects."""
        made = await self.nodes.client(first % self.nodes.size)
        self.clients.append(made)
        return made

    async def start(self) -> None:
        """Make the stream, and begin."""
        client = await self.client(0)
        await insist(
            client,
            f"STREAM.CREATE.{STREAM}",
            name=STREAM,
            subjects=[SUBJECT],
            num_replicas=3,
            allow_direct=True,
        )
        config = {"durable_name": DURABLE, "ack_policy": "explicit", "ack_wait": ACK_WAIT_NS}
        await insist(
            client,
            f"CONSUMER.DURABLE.CREATE.{STREAM}.{DURABLE}",
            stream_name=STREAM,
            config=config,
        )
        await whole(client, STREAM)
        self._last = time.monotonic()
        publishers, consumers = self.sizes
        for number in range(publishers):
            self._publishers.append(asyncio.ensure_future(self._publish(number)))
        for number in range(self.nodes.size):
            self._publishers.append(asyncio.ensure_future(self._get(number)))
        for number in range(consumers):
            self._consumers.append(asyncio.ensure_future(self._consume(number)))

    async def _publish(self, number: int) -> None:
        js = (await self.client(number)).jetstream()
        while not self.halt.is_set():
            ident = f"m{next(self._ids)}"
            sent = {"Nats-Msg-Id": ident}
            began = time.monotonic()
            while True:
                try:
                    ack = await js.publish(
                        SUBJECT, ident.encode(), timeout=TRY_SECONDS, headers=sent
                    )
                    break
                except (NatsError, JetStreamError, TimeoutError):
                    await asyncio.sleep(PACE_SECONDS)
            now = time.monotonic()
            self.wait = max(self.wait, now - began)
            if not self.halt.is_set():
                self.gap, self._last = max(self.gap, now - self._last), now
            self.twice += self.acked.setdefault(ack.seq, ident) != ident
            self.newest = max(self.newest, ack.seq)
            await asyncio.sleep(PACE_SECONDS)

    async def _get(self, number: int) -> None:
        """Get the last message again and again, as a client of one node."""
        client = await self.client(number)
        last = time.monotonic()
        while not self.halt.is_set():
            before = self.newest
            headers: dict[str, str] = {}
            with contextlib.suppress(NatsError, TimeoutError):
                subject = f"$JS.API.DIRECT.GET.{STREAM}.{SUBJECT}"
                headers = (await client.request(subject, timeout=GET_SECONDS)).headers or {}
            if "Nats-Sequence" in headers:
                sequence = int(headers["Nats-Sequence"])
                self.gets += 1
                self.old += sequence < before
                self.newest = max(self.newest, sequence)
                now = time.monotonic()
                self.get_gap, last = max(self.get_gap, now - last), now
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.halt.wait(), PACE_SECONDS)

    async def _consume(self, number: int) -> None:
        js = (await self.client(number + 1)).jetstream()
        sub = await js.pull_subscribe_bind(DURABLE, STREAM)
        while not self.drained.is_set():
            try:
                asked = time.monotonic()
                batch = await sub.fetch(20, timeout=TRY_SECONDS)
                places = [message.metadata.sequence.stream for message in batch]
                # A message may have come at once and waited here for others, while another leader
                # gave it to somebody who confirmed it. What was confirmed before is no such case.
                self.again += sum(self.confirmed.get(n, asked) < asked for n in places)
                for sequence, message in zip(places, batch, strict=True):
                    await self._confirm(message)
                    self.confirmed.setdefault(sequence, time.monotonic())
            except (NatsError, JetStreamError, TimeoutError):
                await asyncio.sleep(PACE_SECONDS)

    async def _confirm(self, message: Any) -> None:
        """Acknowledge until that is answered. Raises NatsError when it never is."""
        for _ in range(TRIES):
            with contextlib.suppress(NatsError, TimeoutError):
                await message.ack_sync(timeout=TRY_SECONDS)
                return
            # While nobody leads, the answer that nobody listens comes at once.
            await asyncio.sleep(ACK_AGAIN_SECONDS)
        raise NatsError

    async def finish(self, outcome: Outcome) -> None:
        """End the publishers, let the consumers come to the end, and judge."""
        # Who has its ack publishes no more from here on. What others still wait for is no gap.
        self.gap = max(self.gap, time.monotonic() - self._last)
        self.halt.set()
        await asyncio.gather(*self._publishers)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while not (self.acked.keys() <= self.confirmed.keys() or await self._empty()):
                    await asyncio.sleep(0.1)
        self.drained.set()
        await asyncio.gather(*self._consumers)
        copies = [await self._read_under(index) for index in range(self.nodes.size)]
        outcome.acked += len(self.acked)
        for copy in copies:
            places = Counter(copy.values())
            lost = sum(ident not in places for ident in self.acked.values())
            repeated = self.twice + sum(count - 1 for count in places.values())
            outcome.lost = max(outcome.lost, lost)
            outcome.repeated = max(outcome.repeated, repeated)
        everything = set().union(*(copy.items() for copy in copies))
        outcome.differ += len(everything) - min(len(copy) for copy in copies)
        outcome.again += self.again
        outcome.gap = max(outcome.gap, self.gap)
        outcome.wait = max(outcome.wait, self.wait)
        outcome.gets += self.gets
        outcome.old += self.old
        outcome.get_gap = max(outcome.get_gap, self.get_gap)

    async def _empty(self) -> bool:
        """Nothing is left to hand out. An ack may have been kept, and its answer lost."""
        info = await insist(self.clients[0], f"CONSUMER.INFO.{STREAM}.{DURABLE}")
        return not (info.get("num_pending", 1) or info.get("num_ack_pending", 1))

    async def _read_under(self, index: int) -> dict[int, str]:
        """What a node's replica holds: it is made the leader, and leaders read their own.
        Raises TimeoutError when it does not become one."""
        client = await self.client(0)
        request = f"STREAM.LEADER.STEPDOWN.{STREAM}"
        await whole(client, STREAM)
        async with asyncio.timeout(LEAD_SECONDS):
            while await leader_of(client, STREAM) != index:
                await insist(client, request, placement={"preferred": f"n{index}"})
                await asyncio.sleep(0.1)
        return await self._read()

    async def _read(self) -> dict[int, str]:
        """All that is stored, by an ordered consumer."""
        client = await self.client(0)
        info = await insist(client, f"STREAM.INFO.{STREAM}")
        found: dict[int, str] = {}
        sub = await client.jetstream().subscribe(SUBJECT, stream=STREAM, ordered_consumer=True)
        with contextlib.suppress(NatsError, TimeoutError):
            while len(found) < info["state"]["messages"]:
                message = await sub.next_msg(timeout=5)
                found[message.metadata.sequence.stream] = message.data.decode()
        return found

    async def close(self) -> None:
        """End everything."""
        for task in (*self._publishers, *self._consumers):
            task.cancel()
        for client in self.clients:
            with contextlib.suppress(NatsError, TimeoutError):
                async with asyncio.timeout(2):
                    await client.close()


@dataclass
class Scene:
    """What a fault has to work on."""

    nodes: ClusterNodes
    chance: random.Random
    seconds: float
    """How long a fault lasts that may last."""
    watcher: Client
    namespaces: Namespaces | None = None
    device: Path | None = None
    """A small file system, which the first node's store is on."""

    async def back(self, *indexes: int) -> None:
        """Start nodes, and wait until the stream has all its replicas."""
        for index in indexes:
            self.nodes.start(index)
        await self.nodes.ready()
        await whole(self.watcher, STREAM)

    async def leader(self) -> int:
        """Who leads the stream."""
        return await leader_of(self.watcher, STREAM)

    def any(self) -> int:
        """Some node."""
        return self.chance.randrange(self.nodes.size)


async def kills(scene: Scene) -> None:
    """SIGKILL for any node."""
    await _killed(scene, lambda victim: None)


async def pauses(scene: Scene) -> None:
    """SIGSTOP for the leader of the stream."""
    victim = await scene.leader()
    scene.nodes.signal(victim, signal.SIGSTOP)
    await asyncio.sleep(scene.seconds)
    scene.nodes.signal(victim, signal.SIGCONT)
    await scene.back()


async def stepped_down(scene: Scene) -> None:
    """The leader of the stream is asked to give it away, again and again."""
    until = time.monotonic() + scene.seconds
    while time.monotonic() < until:
        with contextlib.suppress(NatsError, TimeoutError):
            await insist(scene.watcher, f"STREAM.LEADER.STEPDOWN.{STREAM}")
        await scene.back()


async def all_at_once(scene: Scene) -> None:
    """SIGKILL for all three."""
    everybody = range(scene.nodes.size)
    for index in everybody:
        scene.nodes.kill(index)
    await scene.back(*everybody)


async def wiped(scene: Scene) -> None:
    """A node is killed and comes back with nothing."""
    await _killed(scene, scene.nodes.wipe)


async def flipped(scene: Scene) -> None:
    """A node is killed, and a bit of a file of it, or a file's end, is another when it is back."""
    await _killed(scene, lambda victim: damage(scene.nodes.store(victim), scene.chance))


async def _killed(scene: Scene, harm: Callable[[int], Any]) -> None:
    """A node is killed, and something happens to what it stored before it comes back."""
    victim = scene.any()
    scene.nodes.kill(victim)
    harm(victim)
    await asyncio.sleep(SETTLE_SECONDS)
    await scene.back(victim)


async def full(scene: Scene) -> None:
    """The file system of a node is full for a while."""
    assert scene.device is not None
    foreign = scene.device / "foreign"
    take(foreign, DEVICE_MEBIBYTES << 20)
    until = time.monotonic() + scene.seconds
    while time.monotonic() < until:
        take_the_rest(foreign)
        await asyncio.sleep(HUNGRY_SECONDS)
    foreign.unlink()
    await scene.back()


async def partitioned(scene: Scene) -> None:
    """The leader of the stream hears nobody, and nobody hears it."""
    await _cut(scene, lambda spaces, victim: spaces.cut(victim), scene.seconds)


async def one_way(scene: Scene) -> None:
    """The leader of the stream hears the others, and they do not hear it."""
    await _cut(scene, lambda spaces, victim: spaces.mute(victim), scene.seconds)


async def flapping(scene: Scene) -> None:
    """The leader of the stream is cut off again and again."""
    for _ in range(3):
        await _cut(scene, lambda spaces, victim: spaces.cut(victim), scene.seconds / 6)


async def _cut(scene: Scene, how: Callable[[Namespaces, int], None], seconds: float) -> None:
    spaces = scene.namespaces
    assert spaces is not None
    victim = await scene.leader()
    how(spaces, victim)
    await asyncio.sleep(seconds)
    spaces.mend(victim)
    await scene.back()


FAULTS: dict[str, Callable[[Scene], Awaitable[None]]] = {
    "kills": kills,
    "pauses": pauses,
    "step-downs": stepped_down,
    "all-at-once": all_at_once,
    "wiped": wiped,
    "flipped": flipped,
    "full": full,
    "partitioned": partitioned,
    "one-way": one_way,
    "flapping": flapping,
}
NETWORK = ("partitioned", "one-way", "flapping")


@dataclass(frozen=True)
class Plan:
    """How much of a fault to run."""

    rounds: int = 3
    seed: int = 1
    seconds: float = 30.0
    publishers: int = 16
    consumers: int = 8
    parent: Path | None = None


async def run(fault: str, server: str, plan: Plan) -> Outcome:
    """One fault against one server. Raises NoNamespaces, ServerFailed, TimeoutError."""
    outcome = Outcome(fault, SERVERS[server].name, plan.rounds)
    with contextlib.ExitStack() as stack:
        device = None
        if fault == "full":
            device = stack.enter_context(small_device(DEVICE_MEBIBYTES, plan.parent)).path
        nodes = stack.enter_context(ClusterNodes(SERVERS[server], parent=plan.parent))
        if device is not None:
            nodes.stores[0] = device / "n0"
        spaces = None
        if fault in NETWORK:
            spaces = stack.enter_context(Namespaces(nodes.size))
            nodes.hosts = spaces.addresses
            nodes.wrap = [spaces.inside(index) for index in range(nodes.size)]
        nodes.start_all()
        await nodes.ready()
        load = Load(nodes, plan.publishers, plan.consumers)
        try:
            await load.start()
            watcher = await load.client(1)
            scene = Scene(nodes, random.Random(plan.seed), plan.seconds, watcher, spaces, device)
            for _ in range(plan.rounds):
                await asyncio.sleep(SETTLE_SECONDS)
                await FAULTS[fault](scene)
            await load.finish(outcome)
        finally:
            await load.close()
    return outcome


def table(outcomes: list[Outcome]) -> str:
    """A Markdown table."""
    rows = [list(TITLES), ["---"] * len(TITLES), *(each.row() for each in outcomes)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def outcomes_of(faults: tuple[str, ...], servers: tuple[str, ...], plan: Plan) -> Iterator[Any]:
    """Each Outcome, or a sentence that says why there is none."""
    for fault in faults:
        for server in servers:
            try:
                yield asyncio.run(run(fault, server, plan))
            except (NoNamespaces, ServerFailed, TimeoutError, OSError) as error:
                yield f"{fault}, {server}: not driven: {str(error) or type(error).__name__}"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("faults", nargs=-1, type=click.Choice(list(FAULTS)))
@click.option("--server", "servers", multiple=True, type=click.Choice(list(SERVERS)))
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--seconds", default=30.0, show_default=True, help="Of a pause, a cut, a full disk.")
@click.option("--publishers", type=click.IntRange(1), default=16, show_default=True)
@click.option("--consumers", type=click.IntRange(1), default=8, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for every row instead.")
def main(
    faults: tuple[str, ...],
    servers: tuple[str, ...],
    rounds: int,
    seed: int,
    seconds: float,
    publishers: int,
    consumers: int,
    as_json: bool,
) -> None:
    """Run FAULTS (default: all) against clusters of three, and print what became of every promise.

    Exit codes: 0 this server kept every promise, 1 it did not, 2 something could not be driven.
    """
    end_on_sigterm()
    plan = Plan(rounds, seed, seconds, publishers, consumers)
    found: list[Outcome] = []
    missed = 0
    for each in outcomes_of(faults or tuple(FAULTS), servers or tuple(SERVERS), plan):
        if isinstance(each, Outcome):
            found.append(each)
            click.echo(" ".join(each.row()), err=True)
        else:
            missed += 1
            click.echo(each, err=True)
    rows = "\n".join(json.dumps(vars(each)) for each in found)
    click.echo(rows if as_json else table(found))
    ours = SERVERS["headwater"].name
    broken = any(each.broken for each in found if each.server == ours)
    sys.exit(1 if broken else 2 if missed else 0)


if __name__ == "__main__":
    main(prog_name="python -m bench.cluster.faults")
