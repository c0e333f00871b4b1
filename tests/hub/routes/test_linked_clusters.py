"""Two clusters whose nodes have leaf links to each other: every message comes once, everywhere.

H: a cluster of Headwater, R: of nats-server, 1: one Headwater alone. The first is the hub.
"""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client

from headwater.deploy.compose import services_for
from headwater.edge.conf.load import load_text
from headwater.edge.node.node import Node
from tests.federation.lab import Lab, RealServer, free_port, lab_for
from tests.hub.lab import api
from tests.waiting import silence, until

SETTLED_S = 0.3
"""A message that goes round comes again within it."""


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Lab]:
    """Servers and clients that end with the test."""
    async for each in lab_for(tmp_path):
        yield each


class Site:
    """The servers of one side."""

    def __init__(self, lab: Lab, kind: str, name: str, stores: bool = False) -> None:
        self.lab, self.kind, self.name, self.stores = lab, kind, name, stores
        self.routes = [free_port() for _ in range(1 if kind == "1" else 3)]
        self.leafs = [free_port() for _ in self.routes]
        self.running: list[RealServer | Node] = []

    def text(self, index: int, leafnodes: str) -> str:
        """The configuration of one server."""
        others = [f"nats://127.0.0.1:{port}" for port in self.routes if port != self.routes[index]]
        cluster = (
            f'cluster {{ name: {self.name}, listen: "127.0.0.1:{self.routes[index]}"\n'
            f"routes: {others} }}".replace("'", '"')
        )
        store = self.lab.directory / f"{self.name}{index}.store"
        jetstream = f'jetstream {{ store_dir: "{store}", domain: {self.name} }}\n'
        return (
            f"leafnodes {{ {leafnodes} }}\n{cluster if others else ''}\n"
            f"{jetstream if self.stores else ''}"
        )

    async def start(self, hub: "Site | None", spread: bool) -> list[Client]:
        """Start all, linked to one node of the hub or `spread` over its nodes; a client of each."""
        clients = []
        for index in range(len(self.routes)):
            leafnodes = f"listen: 127.0.0.1:{self.leafs[index]}"
            if hub is not None:
                port = hub.leafs[index % len(hub.leafs) if spread else 0]
                leafnodes = f'reconnect: "100ms", remotes: [ {{ url: "nats://127.0.0.1:{port}" }} ]'
            text = self.text(index, leafnodes)
            if self.kind == "R":
                clients.append(await self.start_real(f"{self.name}{index}", text))
            else:
                clients.append(await self.start_node(f"{self.name}{index}", text))
        return clients

    async def start_real(self, name: str, text: str) -> Client:
        server = await self.lab.real(text, name)
        self.running.append(server)
        return await self.lab.client(server.port)

    async def start_node(self, name: str, text: str) -> Client:
        port = free_port()
        text = f"listen: 127.0.0.1:{port}\nserver_name: {name}\n{text}"
        options = load_text(text).options
        node = Node(options, asyncio.get_running_loop())
        node.services.extend(services_for(options))
        node.start()
        self.running.append(node)
        return await self.lab.client(port)

    async def stop(self) -> None:
        for each in self.running:
            if isinstance(each, Node):
                await each.stop()


async def counts(clients: list[Client], subject: str) -> dict[tuple[int, int], int]:
    """How often what one server's client said has come to another's, where that is not once:
    (from, to)."""
    got: Counter[tuple[int, int]] = Counter()
    subs = []
    for to, client in enumerate(clients):

        async def take(message: object, to: int = to) -> None:
            got[(int(message.data), to)] += 1  # type: ignore[attr-defined]

        subs.append(await client.subscribe(subject, cb=take))
        await client.flush()
    pairs = [(a, b) for a in range(len(clients)) for b in range(len(clients))]

    async def all_there() -> bool:
        """Interest has spread: before, what is said is missed, and said again on another."""
        got.clear()
        for number, client in enumerate(clients):
            await client.publish(subject, b"%d" % number)
            await client.flush()
        await silence(SETTLED_S)
        return all(got[pair] for pair in pairs)

    await until(all_there, f"{subject} has come to all")
    got.clear()
    for number, client in enumerate(clients):
        await client.publish(subject, b"%d" % number)
        await client.flush()
    await silence(SETTLED_S)
    for sub in subs:
        await sub.unsubscribe()
    return {pair: got[pair] for pair in pairs if got[pair] != 1}


LINKED = [
    *((kinds, spread) for kinds in ("HH", "HR", "RH") for spread in (False, True)),
    ("1H", False),
]
"""Hub and edge, and whether the edge's nodes are linked to several of the hub's or to one."""


@pytest.mark.parametrize(("kinds", "spread"), LINKED)
async def test_every_message_comes_once(servers: Lab, kinds: str, spread: bool) -> None:
    hub, edge = Site(servers, kinds[0], "hub"), Site(servers, kinds[1], "edge")
    try:
        clients = await hub.start(None, spread) + await edge.start(hub, spread)
        assert await counts(clients, "plain") == {}
        group: list[bytes] = []

        async def take(message: object) -> None:
            group.append(message.data)  # type: ignore[attr-defined]

        for client in clients:
            await client.subscribe("shared", "group", cb=take)
            await client.flush()
        assert await counts(clients, "plain.again") == {}
        for number, client in enumerate(clients):
            for _ in range(10):
                await client.publish("shared", b"%d" % number)
            await client.flush()
        await until(lambda: len(group) >= 10 * len(clients), "the group has all")
        await silence(SETTLED_S)
        assert Counter(group) == {b"%d" % number: 10 for number in range(len(clients))}
    finally:
        await edge.stop()
        await hub.stop()


async def test_a_leader_that_changes_stores_what_the_hub_says_once(servers: Lab) -> None:
    """Nodes of the edge's cluster hold what their clients say meanwhile, and not what the hub
    does: it would tell each of them."""
    hub, edge = Site(servers, "1", "hub"), Site(servers, "H", "edge", stores=True)
    try:
        (publisher,) = await hub.start(None, False)
        client = (await edge.start(hub, False))[0]
        stream = {"name": "S", "subjects": ["s"], "num_replicas": 3}

        async def made() -> bool:
            with contextlib.suppress(nats.errors.Error):
                return "error" not in await api(client, "STREAM.CREATE.S", **stream)
            return False

        await until(made, "the cluster makes a stream")
        acked: dict[int, bytes] = {}
        goes_on = True

        async def publish(worker: int) -> None:
            number = 0
            while goes_on:
                number += 1
                payload = b"%d %d" % (worker, number)
                with contextlib.suppress(nats.errors.Error):
                    answer = json.loads((await publisher.request("s", payload, timeout=5)).data)
                    if "error" not in answer:
                        assert acked.setdefault(answer["seq"], payload) == payload

        tasks = [asyncio.create_task(publish(worker)) for worker in range(4)]
        for _ in range(4):
            before = len(acked)
            await until(lambda before=before: len(acked) > before + 50, "messages are stored")
            assert "error" not in await api(client, "STREAM.LEADER.STEPDOWN.S")
        goes_on = False
        await asyncio.gather(*tasks)
        last = (await api(client, "STREAM.INFO.S"))["state"]["last_seq"]
        js = client.jetstream()
        stored = [(await js.get_msg("S", number)).data for number in range(1, last + 1)]
        assert len(stored) == len(set(stored)), "messages came twice"
        assert all(stored[number - 1] == payload for number, payload in acked.items())
    finally:
        await edge.stop()
        await hub.stop()
