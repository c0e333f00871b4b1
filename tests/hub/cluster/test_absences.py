"""What clients notice of leaders that change: a pause, and nothing else."""

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.errors import NoStreamResponseError

from bench.cluster.nodes import SERVERS, ClusterNodes, leader_of, whole
from headwater.hub.streams import absences
from tests.hub.cluster.one_stream import STREAM, begun
from tests.hub.lab import Lab, api
from tests.slow import one_in
from tests.waiting import until

GENTLE = 'lame_duck_duration: "30s"\nlame_duck_grace_period: "100ms"\n'


class Load:
    """Publishers and consumers that note every error, and what was acked."""

    def __init__(self) -> None:
        self.halt = False
        self.errors: list[tuple[str, BaseException]] = []
        self.acked: list[tuple[int, bytes]] = []
        self.rounds: collections.Counter[str] = collections.Counter()
        self.tasks: list[asyncio.Task[None]] = []
        self.listeners: set[str] = set()

    def go_on(self, name: str, action: Callable[[int], Awaitable[Any]]) -> None:
        """Do something again and again."""

        async def run() -> None:
            number = 0
            while not self.halt:
                try:
                    await action(number)
                    self.rounds[name] += 1
                except Exception as error:
                    self.errors.append((name, error))
                number += 1

        self.tasks.append(asyncio.create_task(run()))

    def publish(self, client: Client, name: str) -> None:
        """Publish, each message when the one before it is acked."""
        js = client.jetstream()

        async def one(number: int) -> None:
            body = b"%b:%d" % (name.encode(), number)
            ack = await js.publish(f"s.{name}", body, timeout=5)
            self.acked.append((ack.seq, body))

        self.go_on(f"publish {name}", one)

    async def consume(self, client: Client, name: str) -> None:
        """Fetch, and ack with an answer."""
        sub = await client.jetstream().pull_subscribe("s.>", durable=name, stream="S")

        async def some(_: int) -> None:
            for message in await sub.fetch(20, timeout=5):
                await message.ack_sync(timeout=5)

        self.go_on(f"fetch {name}", some)

    async def listen(self, client: Client, name: str) -> None:
        """Have messages sent to a durable push consumer, and ack them."""

        async def hear(message: Any) -> None:
            await message.ack()
            self.rounds[name] += 1

        self.listeners.add(name)
        await client.jetstream().subscribe(
            "s.>", durable=name, stream="S", cb=hear, manual_ack=True
        )

    async def more(self) -> None:
        """Return when everybody has done something more."""
        before = dict(self.rounds)
        await until(
            lambda: len(self.rounds) == len(self.tasks) + len(self.listeners)
            and all(now > before.get(name, 0) + 1 for name, now in self.rounds.items())
        )

    async def end(self) -> None:
        """Let everybody finish what was begun."""
        self.halt = True
        await asyncio.gather(*self.tasks)


async def stored(client: Client) -> dict[int, bytes]:
    """What the stream has by sequence."""
    info = await api(client, "STREAM.INFO.S")
    found: dict[int, bytes] = {}
    sub = await client.jetstream().subscribe("s.>", ordered_consumer=True)
    while len(found) < info["state"]["messages"]:
        message = await sub.next_msg(timeout=10)
        found[message.metadata.sequence.stream] = message.data
    await sub.unsubscribe()
    return found


@contextlib.asynccontextmanager
async def loaded(lab: Lab) -> AsyncIterator[tuple[Load, Client]]:
    """A replicated stream, and clients of it on each node of a cluster that is formed."""
    client = await lab.connect(0)
    assert "error" not in await api(client, "STREAM.CREATE.S", **STREAM)
    load = Load()
    for index in range(3):
        load.publish(await lab.connect(index), f"p{index}")
        await load.consume(await lab.connect(index), f"c{index}")
    await load.listen(await lab.connect(0), "push")
    await load.more()
    try:
        yield load, client
    finally:
        await load.end()


async def change_leader(client: Client) -> None:
    """Let another node lead the stream."""
    answer = await api(client, "STREAM.LEADER.STEPDOWN.S")
    assert answer.get("success"), answer


async def test_nobody_notices_that_leaders_change(lab: Lab) -> None:
    """Publishes, pull requests and acks, on the leader's node and on others."""
    await lab.formed()
    await unnoticed(lab)


async def unnoticed(lab: Lab) -> Load:
    """Let leaders change under load: nobody hears of it, and every message is there once."""
    async with loaded(lab) as (load, client):
        for _ in range(6):
            await change_leader(client)
            await load.more()
    assert load.errors == []
    found = await stored(client)
    assert all(found[sequence] == body for sequence, body in load.acked)
    assert len(found) == len(load.acked) == len(set(found.values()))
    return load


async def test_nodes_without_a_replica_hold_messages_too(lab: Lab) -> None:
    await lab.resized(5)
    client = await lab.connect(0)
    cluster = (await api(client, "STREAM.CREATE.S", **STREAM))["cluster"]
    members = {cluster["leader"], *(each["name"] for each in cluster["replicas"])}
    load = Load()
    for index in (each for each in range(5) if f"n{each}" not in members):
        load.publish(await lab.connect(index), f"p{index}")
        await load.consume(await lab.connect(index), f"c{index}")
    await load.more()
    for _ in range(4):
        await change_leader(client)
        await load.more()
    await load.end()
    assert load.errors == []
    assert len(await stored(client)) == len(load.acked)


async def test_who_listens_besides_makes_nothing_come_twice(lab: Lab) -> None:
    """Leaders' nodes get messages for other subscribers, too."""
    await lab.formed()
    heard: list[collections.Counter[bytes]] = []
    for index in range(3):
        for subject in ("s.>", ">"):
            counter: collections.Counter[bytes] = collections.Counter()

            async def hear(message: Any, counter: collections.Counter[bytes] = counter) -> None:
                if message.subject.startswith("s.") and message.reply.startswith("_INBOX."):
                    counter[message.data] += 1

            listener = await lab.connect(index)
            await listener.subscribe(subject, cb=hear)
            await listener.flush()
            heard.append(counter)
    load = await unnoticed(lab)
    wanted = {body: 1 for _, body in load.acked}
    for counter in heard:
        await until(lambda counter=counter: dict(counter) == wanted)


@pytest.mark.parametrize("overheard", one_in(2, [False, True]))
async def test_messages_stay_in_order(lab: Lab, overheard: bool) -> None:
    """With many on their way at once; `overheard`: each node has another subscriber to them."""
    await lab.formed()
    client = await lab.connect(0)
    assert "error" not in await api(client, "STREAM.CREATE.S", **STREAM)
    clients = [await lab.connect(index) for index in range(3)]
    for each in clients if overheard else ():
        await each.subscribe("s.>", cb=ignore)
        await each.flush()
    publishers = [each.jetstream() for each in clients]
    sequences: list[list[int]] = []
    for round_number in range(4):
        futures: list[list[Any]] = [[], [], []]
        for number in range(200):
            for index, js in enumerate(publishers):
                body = b"%d %d %d" % (index, round_number, number)
                futures[index].append(await js.publish_async(f"s.{index}", body, wait_stall=5))
            if number == 50:
                stepping = asyncio.create_task(change_leader(client))
            if number % 10 == 0:
                await asyncio.gather(*(each.flush() for each in clients))
        await stepping
        for acks in futures:
            sequences.append([ack.seq for ack in await asyncio.gather(*acks)])
    assert all(each == sorted(set(each)) for each in sequences)
    assert sorted(seq for each in sequences for seq in each) == list(range(1, 2401))


async def ignore(message: Any) -> None:
    """Hear a message, and do nothing."""


async def left_alone(lab: Lab) -> tuple[Client, absences.Absences, int]:
    """The last of three nodes, which did not lead the stream: its client, what it holds, and its
    number."""
    await lab.formed()
    client = await lab.connect(0)
    assert "error" not in await api(client, "STREAM.CREATE.S", **STREAM)
    leader = int((await api(client, "STREAM.INFO.S"))["cluster"]["leader"][1:])
    left = (leader + 1) % 3
    client = await lab.connect(left)
    await client.jetstream().publish("s.a", b"x")
    for index in {0, 1, 2} - {left}:
        await lab.stop_node(index)
    held = lab.service(left).absences
    assert held is not None
    await until(lambda: held.absent)
    return client, held, left


async def test_nobody_waits_for_ever(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a quorum there is no next leader; what is held is given up, and is bounded."""
    monkeypatch.setattr(absences, "HOLD_SECONDS", 0.5)
    monkeypatch.setattr(absences, "HELD_MAX", 3)
    client, held, _ = await left_alone(lab)
    js = client.jetstream()
    told = await asyncio.gather(
        *(js.publish("s.a", b"x", timeout=5) for _ in range(5)), return_exceptions=True
    )
    assert all(isinstance(each, NoStreamResponseError) for each in told), told
    assert (held.count, held.bytes) == (0, 0)
    assert not held.absent


async def test_a_node_that_stops_tells_who_waits(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it holds for a leader that does not come gets an answer before connections end."""
    monkeypatch.setattr(absences, "HOLD_SECONDS", 600.0)
    client, held, left = await left_alone(lab)
    told = [
        asyncio.ensure_future(client.jetstream().publish("s.a", b"x", timeout=60))
        for _ in range(5)
    ]
    await until(lambda: held.count == 5)
    await lab.stop_node(left)
    answers = await asyncio.gather(*told, return_exceptions=True)
    assert all(isinstance(each, NoStreamResponseError) for each in answers), answers


@pytest.mark.parametrize("room", [2, 100])
async def test_pull_requests_are_handed_over_together(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """All of them wait at the next leader; without room for all, each is ended, and none waits."""
    monkeypatch.setattr(absences, "HELD_MAX", room)
    await lab.formed()
    client = await lab.connect(0)
    assert "error" not in await api(client, "STREAM.CREATE.S", **STREAM)
    await client.jetstream().pull_subscribe("s.>", durable="C", stream="S")
    inbox = client.new_inbox()
    sub = await client.subscribe(inbox)
    for _ in range(3):
        request = b'{"batch": 1, "expires": 30000000000}'
        await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", request, reply=inbox)

    async def waiting() -> bool:
        return bool((await api(client, "CONSUMER.INFO.S.C")).get("num_waiting") == 3)

    await until(waiting)
    await change_leader(client)
    ended = [(await sub.next_msg(10)).headers for _ in range(3 if room < 3 else 0)]
    assert all(each and each["Status"] == "409" for each in ended)
    if room > 3:
        await until(waiting)
    else:
        info: dict[str, Any] = {}

        async def led() -> bool:
            info.update(await api(client, "CONSUMER.INFO.S.C"))
            return "error" not in info

        await until(led)
        assert info["num_waiting"] == 0


async def test_a_killed_leader_costs_what_was_on_its_way_to_it(tmp_path: Path) -> None:
    """What is published after that waits for the next leader."""
    with ClusterNodes(SERVERS["headwater"], parent=tmp_path) as nodes:
        client = await begun(nodes)
        victim = await leader_of(client, "S")
        load = Load()
        for index in {0, 1, 2} - {victim}:
            for number in range(3):
                load.publish(await nodes.client(index), f"p{index}{number}")
        await load.more()
        nodes.kill(victim)
        await load.more()
        await load.end()
        assert all(isinstance(error, TimeoutError) for _, error in load.errors), load.errors
        assert len(load.errors) <= len(load.tasks)
        last = await nodes.client((victim + 1) % 3)
        found = await stored(last)
        assert all(found[sequence] == body for sequence, body in load.acked)


@pytest.mark.parametrize("way", one_in(2, ["stop", "lame duck"]))
async def test_a_rolling_restart_shows_as_reconnects(tmp_path: Path, way: str) -> None:
    """Clients of the node that leaves lose no answer either."""
    reconnects = 0

    async def again() -> None:
        nonlocal reconnects
        reconnects += 1

    with ClusterNodes(SERVERS["headwater"], parent=tmp_path, more=GENTLE) as nodes:
        await begun(nodes)
        load = Load()
        for index in range(3):
            load.publish(await nodes.client(index, reconnected_cb=again), f"p{index}")
            await load.consume(await nodes.client(index, reconnected_cb=again), f"c{index}")
        for index in range(3):
            await load.more()
            if way == "stop":
                await asyncio.to_thread(nodes.stop, index)
            else:
                await asyncio.to_thread(nodes.leave, index, 60)
            await load.more()
            nodes.start(index)
            await nodes.ready()
            await whole(await nodes.client(index), "S")
        await load.end()
        # A busy node may be stopped before it has handed over what it leads. nats-py may drop
        # what it writes between the end of its connection and the moment in which it notices.
        allowed = {"stop": len(load.tasks), "lame duck": len(load.tasks) // 2}[way]
        assert all(isinstance(error, TimeoutError) for _, error in load.errors), load.errors
        assert len(load.errors) <= allowed, load.errors
        assert reconnects >= 6
        found = await stored(await nodes.client(0))
        assert all(found[sequence] == body for sequence, body in load.acked)
        assert len(load.acked) <= len(found) == len(set(found.values()))
