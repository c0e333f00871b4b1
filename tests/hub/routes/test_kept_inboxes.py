"""What comes to the inbox of a client whose node leaves: all of it, and nothing twice."""

import asyncio
import contextlib
import re
import time
from functools import partial
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.errors import Error as NatsError

from bench.cluster.nodes import READY_SECONDS, SERVERS, ClusterNodes
from tests.federation.lab import Wire
from tests.hub.routes.test_routes import Cluster
from tests.waiting import until

PACE_SECONDS = 0.0001


class PlainNodes(ClusterNodes):
    """A cluster without JetStream."""

    def config(self, index: int) -> str:
        """As of ClusterNodes."""
        return re.sub(r"jetstream \{.*?\}\n", "", super().config(index), flags=re.DOTALL)

    async def ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until every node tells its clients of all."""
        for index in range(self.size):
            await until(partial(self._knows_all, index), "the cluster", seconds)

    async def _knows_all(self, index: int) -> bool:
        with contextlib.suppress(OSError, NatsError):
            client = await nats.connect(self.url(index), allow_reconnect=False)
            known = len(client.discovered_servers)
            await client.close()
            return known == self.size - 1
        return False


@pytest.mark.parametrize(
    ("kind", "other"),
    [(ClusterNodes, 2), (PlainNodes, 2), (PlainNodes, 1)],
    ids=["jetstream", "core", "beside"],
)
async def test_a_client_whose_node_stops_hears_everything_once(
    tmp_path: Path, kind: type[ClusterNodes], other: int
) -> None:
    """The sender's node may hear of the client's next one before the node that stops does. Who
    listens to all inboxes, at the `other` node, hears each message once, too."""
    heard: list[int] = []
    overheard: list[int] = []
    sent = 0
    halt = asyncio.Event()

    async def hear(message: Any) -> None:
        heard.append(int(message.data))

    async def overhear(message: Any) -> None:
        if message.subject == "_INBOX.reader.1":
            overheard.append(int(message.data))

    async def reaches(number: int) -> bool:
        return number in heard and number in overheard

    with kind(SERVERS["headwater"], parent=tmp_path) as nodes:
        nodes.start_all()
        await nodes.ready()
        reader, sender, spy = [await nodes.client(index) for index in (0, 2, other)]
        await reader.subscribe("_INBOX.reader.*", cb=hear)
        await reader.flush()
        await spy.subscribe("_INBOX.>", cb=overhear)
        await spy.flush()

        async def send() -> None:
            nonlocal sent
            while not halt.is_set():
                await sender.publish("_INBOX.reader.1", b"%d" % sent)
                sent += 1
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(halt.wait(), PACE_SECONDS)

        task = asyncio.create_task(send())
        await until(lambda: reaches(50), "the first messages")
        await asyncio.to_thread(nodes.stop, 0)
        await until(lambda: reaches(sent - 1), "messages by another node")
        halt.set()
        await task
        await until(lambda: reaches(sent - 1), "the last message")
        assert reader.connected_url is not None
        assert reader.connected_url.port == nodes.ports[1]
        for client in (reader, sender, spy):
            await client.close()
    assert [number for number in set(heard) if heard.count(number) > 1] == []
    assert [number for number in set(overheard) if overheard.count(number) > 1] == []
    assert sorted(set(heard)) == list(range(min(heard), sent))


async def test_answers_of_another_account_come_once(tmp_path: Path) -> None:
    """They come to the node that was asked, and are led back to the inbox there."""
    more = (
        'accounts { A { users: [ { user: "a", password: "a" } ]\n'
        '  exports: [ { service: "help", response_type: "stream" } ] }\n'
        'B { users: [ { user: "b", password: "b" } ]\n'
        '  imports: [ { service: { account: A, subject: "help" } } ] }\n'
        'J { jetstream: enabled, users: [ { user: "j", password: "j" } ] } }\nno_auth_user: j'
    )
    heard: list[tuple[int, int]] = []
    sent = 0
    halt = asyncio.Event()

    async def reaches(port: int) -> bool:
        return sum(place == port for _, place in heard) > 50

    with ClusterNodes(SERVERS["headwater"], parent=tmp_path, more=more) as nodes:
        nodes.start_all()
        await nodes.ready()
        reader = await nodes.client(0, user="b", password="b")
        helper = await nodes.client(2, user="a", password="a")

        async def hear(message: Any) -> None:
            assert reader.connected_url is not None
            heard.append((int(message.data), reader.connected_url.port or 0))

        async def send(message: Any) -> None:
            nonlocal sent
            while not halt.is_set():
                sent += 1
                await message.respond(b"%d" % sent)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(halt.wait(), PACE_SECONDS)

        async def ask() -> bool:
            await reader.publish("help", reply="_INBOX.reader.1")
            return bool(heard)

        await helper.subscribe("help", cb=send)
        await helper.flush()
        await reader.subscribe("_INBOX.reader.*", cb=hear)
        await until(ask, "an answer")
        await until(lambda: reaches(nodes.ports[0]), "answers by the first node")
        await asyncio.to_thread(nodes.stop, 0)
        await until(lambda: reaches(nodes.ports[1]), "answers that went on to the next node")
        halt.set()
        await reader.close()
        await helper.close()
    numbers = [number for number, _ in heard]
    assert [number for number in set(numbers) if numbers.count(number) > 1] == []


async def test_many_clients_leave_in_time_though_another_node_is_far_away() -> None:
    """Others hear of each client's inbox before it leaves. One after the other, that takes 16 s."""
    cluster = Cluster()
    cluster.add()
    wire = await Wire(cluster.ports[0]).start()
    try:
        leaver = cluster.add(wire.port, lame_duck_grace=0.0, lame_duck_duration=1.0)
        await cluster.formed()
        clients = [await cluster.connect(1) for _ in range(40)]
        for number, client in enumerate(clients):
            await client.subscribe(f"_INBOX.{number}")
            await client.flush()
        wire.delay_s = 0.2
        began = time.monotonic()
        leaving = asyncio.create_task(leaver.lame_duck())
        await until(lambda: all(client.is_closed for client in clients), "all have left")
        in_a_row = len(clients) * 2 * wire.delay_s
        assert time.monotonic() - began < in_a_row
        await leaving
    finally:
        await cluster.stop()
        await wire.stop()
