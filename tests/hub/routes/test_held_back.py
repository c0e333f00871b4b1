"""A receiver without room holds up those who publish to it, on other nodes too: not the route, on
which other accounts and the nodes themselves speak."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest

from headwater.edge.broker import halts
from headwater.edge.conf.options import AccountOptions
from headwater.edge.node.node import Node
from headwater.hub.routes import dialer
from headwater.hub.routes.route_conn import RouteConn
from headwater.security.auth_options import UserOptions
from tests.hub.lab import Lab, api
from tests.hub.routes.test_route_pools import registry
from tests.hub.routes.test_routes import Cluster, interest
from tests.slow_reader import SIZE, numbers, opened, publish
from tests.waiting import silence, until

ACCOUNTS = {
    name: AccountOptions(name=name, users=[UserOptions(user=name, password="pw", account=name)])
    for name in ("A", "B")
}


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialer, "RETRY_S", 0.05)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Two nodes, on whose one route all accounts are."""
    found = Cluster()
    found.add(cluster={"pool_size": 1}, accounts=ACCOUNTS)
    found.add(found.ports[0], cluster={"pool_size": 1}, accounts=ACCOUNTS)
    await found.formed()
    yield found
    await found.stop()


def shared(node: Node) -> RouteConn:
    """The route to the other node that no account has for itself."""
    [conn] = [each for each in registry(node).all_routes() if each.own is None]
    assert isinstance(conn, RouteConn)
    return conn


async def at(node: Node, more: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A slow client of account A."""
    port = node.ports()["nats"][0].rpartition(":")[2]
    return await opened(int(port), more, b'"user":"A","pass":"pw",')


@pytest.mark.parametrize("subjects", [1, 200])
async def test_a_slow_reader_holds_up_its_publisher_and_no_other_account(
    cluster: Cluster, subjects: int
) -> None:
    """Its publisher waits at the other node, and each message comes once, in order. With many
    subscriptions the whole account is asked for."""
    near, far = cluster.nodes
    service = await cluster.connect(0, user="B", password="pw")

    async def answer(message: Any) -> None:
        await message.respond(message.data)

    await service.subscribe("service", cb=answer)
    asking = await cluster.connect(1, user="B", password="pw")
    names = [b"slow.%d" % number for number in range(subjects)]
    wanted = b"".join(b"SUB %b %d\r\n" % (name, sid) for sid, name in enumerate(names))
    reader, slow = await at(near, wanted + b"PING\r\n")
    await until(lambda: interest(far, names[-1], "A") and interest(far, b"service", "B"))
    _, writer = await at(far, b"")
    publishing = asyncio.ensure_future(publish(writer, names, 10_000))
    await until(lambda: shared(far).halts.held)
    for number in range(50):
        heard = await asking.request("service", b"%d" % number, timeout=5)
        assert heard.data == b"%d" % number
    await until(lambda: subjects == 1 or None in shared(far).halts.held[b"A"])
    assert not publishing.done(), "the publisher waits"
    assert shared(far).halts.count <= 65
    assert await numbers(reader, 10_000) == list(range(10_000))
    await publishing
    await until(lambda: not shared(far).halts.held and not shared(near).halts.asked)
    slow.close()
    writer.close()


async def test_a_route_that_ends_holds_nothing_back(cluster: Cluster) -> None:
    """Who waits for a peer's word goes on when the route ends."""
    far = cluster.nodes[1]
    hearing = await cluster.connect(0, user="A", password="pw")
    await hearing.subscribe("x")
    await until(lambda: interest(far, b"x", "A"))
    shared(far).halts.hold(b"A")
    reader, speaking = await at(far, b"PUB x 1\r\n1\r\nPING\r\n")
    pong = asyncio.ensure_future(reader.readuntil(b"PONG\r\n"))
    await until(lambda: far.kernel.in_msgs)
    await silence(0.1)
    assert not pong.done()
    shared(far).close("Test")
    await pong
    speaking.close()


async def test_what_a_peer_asked_ends_when_it_says_no_more(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word that went astray stops nobody for good; without it the publisher would wait."""
    monkeypatch.setattr(halts, "HELD_S", 0.2)
    far = cluster.nodes[1]
    hearing = await cluster.connect(0, user="A", password="pw")
    heard = await hearing.subscribe("x")
    await until(lambda: interest(far, b"x", "A"))
    shared(far).halts.hold(b"A x")
    begin = asyncio.get_running_loop().time()
    _, speaking = await at(far, b"".join(b"PUB x 1\r\n%d\r\n" % n for n in range(3)))
    assert [(await heard.next_msg(5)).data for _ in range(3)] == [b"0", b"1", b"2"]
    assert asyncio.get_running_loop().time() - begin > 0.15
    assert not shared(far).halts.held
    speaking.close()


async def test_a_peer_asks_for_no_more_than_is_kept(cluster: Cluster) -> None:
    """Whatever a peer asks, what it takes is bounded; odd text ends its route."""
    far = cluster.nodes[1]
    for number in range(5000):
        shared(far).halts.hold(b"A s%d" % number)
    assert shared(far).halts.count <= 1024
    before = shared(far)
    before.session.got_info(before, b'{"server_id":"X","hold":"A \\u1234"}')
    await until(lambda: before.closed)


async def test_nodes_speak_on_the_route_of_the_system_account(cluster: Cluster) -> None:
    """No tenant's messages are before theirs there. Without it they speak on a shared one."""
    near = cluster.nodes[0]
    [peer] = registry(near).peers.values()
    assert peer.speaker.own == b"$SYS"
    peer.speaker.close("Test")
    assert peer.speaker is not None and peer.speaker.own is None
    await until(lambda: peer.speaker is not None and peer.speaker.own == b"$SYS")


async def test_a_flood_to_a_replicated_stream_costs_no_leader(tmp_path: Path) -> None:
    """Messages that nobody waits for come faster than they are stored. Nodes hear each other all
    the time, and each message is stored: it waits with its publisher."""
    lab = Lab(tmp_path, routing={"pool_size": 1})
    try:
        await lab.formed()
        client = await lab.connect(0)
        made = await api(client, "STREAM.CREATE.S", name="S", subjects=["s"], num_replicas=3)
        leader = made["cluster"]["leader"]
        speaking = [await lab.connect(index) for index in range(3) if f"n{index}" != leader]

        async def flood(one: nats.NATS) -> None:
            for _ in range(50):
                for _ in range(100):
                    await one.publish("s", bytes(SIZE))
                await one.flush(30)

        await asyncio.gather(*map(flood, speaking))

        async def stored() -> bool:
            info = await api(client, "STREAM.INFO.S")
            assert info["cluster"]["leader"] == leader
            return bool(info["state"]["messages"] == 10_000)

        await until(stored)
    finally:
        await lab.stop()
