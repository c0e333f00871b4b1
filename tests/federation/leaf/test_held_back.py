"""A receiver without room behind a leaf link holds up who publishes to it, and not the link."""

import asyncio
import itertools
from typing import Any

import pytest

from bench.servers import free_port
from headwater.edge.broker import halts
from headwater.edge.node.node import Node
from tests.federation.lab import Lab, client_port, leaf_port, leaf_service, leafs, wired
from tests.slow_reader import numbers, opened, publish
from tests.waiting import silence, until

COUNT = 10_000


def names(count: int) -> list[bytes]:
    """So many subjects below `slow`."""
    return [b"slow.%d" % number for number in range(count)]


async def served(lab: Lab, port: int, asking_port: int) -> Any:
    """Ask a service at one port from the other one; the asking client, once it is answered."""
    service = await lab.client(port)

    async def answer(message: Any) -> None:
        await message.respond(message.data)

    await service.subscribe("service", cb=answer)
    await service.flush()
    asking = await lab.client(asking_port)

    async def answered() -> bool:
        try:
            return bool((await asking.request("service", b"?", timeout=1)).data == b"?")
        except Exception:
            return False

    await until(answered)
    return asking


async def asks(asking: Any) -> None:
    """Fifty requests over the link are answered soon, one by one."""
    for number in range(50):
        heard = await asking.request("service", b"%d" % number, timeout=5)
        assert heard.data == b"%d" % number


def shut(halts: Any) -> dict[bytes, list[bytes | None]]:
    """What the peer of a link has a node hold back, of each account."""
    found = {
        account: [pattern for pattern, gate in gates.items() if gate.shut]
        for account, gates in halts.held.items()
    }
    return {account: patterns for account, patterns in found.items() if patterns}


def held(node: Node) -> dict[bytes, list[bytes | None]]:
    """What the peers of a node have it hold back."""
    found = {}
    for conn in leaf_service(node).links.conns.values():
        found.update(shut(conn.halts))
    return found


@pytest.mark.parametrize("subjects", [1, 200])
@pytest.mark.parametrize("upward", [False, True])
async def test_a_slow_reader_holds_up_its_publisher_and_not_the_link(
    lab: Lab, upward: bool, subjects: int
) -> None:
    """Its publisher waits at the other end, and each message comes once, in order. However many
    subjects there are, the peer is asked for what the reader subscribes to."""
    hub, edge, _ = await wired(lab)
    near, far = (hub, edge) if upward else (edge, hub)
    asking = await served(lab, client_port(near), client_port(far))
    reader, slow = await opened(client_port(near), b"SUB slow.> 1\r\nPING\r\n")
    await reader.readuntil(b"PONG\r\n")
    await until(lambda: far.account("$G").has_interest(b"slow.0"))
    _, writer = await opened(client_port(far), b"")
    publishing = asyncio.ensure_future(publish(writer, names(subjects), COUNT))
    await until(lambda: held(far))
    await asks(asking)
    assert list(held(far).values()) == [[b"slow.>"]]
    assert not publishing.done(), "the publisher waits"
    assert await numbers(reader, COUNT) == list(range(COUNT))
    await publishing
    await until(lambda: not held(far))
    assert leafs(far), "the link is up all the time"
    slow.close()
    writer.close()


async def test_a_reader_two_links_away_holds_up_its_publisher(lab: Lab) -> None:
    """The hub between two gateways passes on what it is asked: no link rests."""
    hub, near, _ = await wired(lab)
    far = await lab.node(
        "server_name: far\nleafnodes "
        f'{{ remotes [ {{ url: "nats://127.0.0.1:{leaf_port(hub)}" }} ] }}'
    )
    asking = await served(lab, client_port(near), client_port(far))
    reader, slow = await opened(client_port(near), b"SUB slow.> 1\r\nPING\r\n")
    await reader.readuntil(b"PONG\r\n")
    await until(lambda: far.account("$G").has_interest(b"slow.0"))
    _, writer = await opened(client_port(far), b"")
    publishing = asyncio.ensure_future(publish(writer, names(5), COUNT))
    await until(lambda: held(far))
    await asks(asking)
    assert not publishing.done()
    assert await numbers(reader, COUNT) == list(range(COUNT))
    await publishing
    slow.close()
    writer.close()


async def test_a_mapped_subject_is_held_back_as_its_publisher_calls_it(lab: Lab) -> None:
    """The hub's account maps what comes by the link: the other end knows the subject alone that is
    published there."""
    port = free_port()
    hub = await lab.node(
        f'server_name: hub, leafnodes {{ listen: "127.0.0.1:{port}" }}\n'
        'mappings { "told.*": "slow.$1" }'
    )
    edge = await lab.node(
        "server_name: edge\nleafnodes "
        f'{{ remotes [ {{ url: "nats://127.0.0.1:{port}" }} ] }}'
    )
    asking = await served(lab, client_port(hub), client_port(edge))
    reader, slow = await opened(client_port(hub), b"SUB slow.> 1\r\nPING\r\n")
    await reader.readuntil(b"PONG\r\n")
    await until(lambda: edge.account("$G").has_interest(b"told.0"))
    _, writer = await opened(client_port(edge), b"")
    publishing = asyncio.ensure_future(publish(writer, [b"told.0", b"told.1"], COUNT))
    await until(lambda: held(edge))
    await asks(asking)
    assert set().union(*held(edge).values()) <= {b"told.0", b"told.1"}
    assert not publishing.done(), "the publisher waits"
    assert await numbers(reader, COUNT) == list(range(COUNT))
    await publishing
    slow.close()
    writer.close()


async def test_a_link_that_ends_or_a_word_that_is_lost_stops_nobody(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for a peer's word goes on when the link ends, and when nothing more is said."""
    monkeypatch.setattr(halts, "HELD_S", 0.2)
    hub, edge, wire = await wired(lab)
    hearing = await lab.client(client_port(edge))
    await hearing.subscribe("x.>")
    await until(lambda: hub.account("$G").has_interest(b"x.y"))
    [conn] = leaf_service(hub).links.conns.values()
    for ends in (False, True):
        monkeypatch.setattr(halts, "HELD_S", 60 if ends else 0.2)
        conn.halts.hold(b"* x.>")
        reader, writer = await opened(client_port(hub), b"PUB x.y 1\r\n1\r\nPING\r\n")
        pong = asyncio.ensure_future(reader.readuntil(b"PONG\r\n"))
        await silence(0.1)
        assert not pong.done()
        if ends:
            wire.cut()
        await asyncio.wait_for(pong, 10)
        assert not shut(conn.halts)
        writer.close()


async def test_what_a_peer_asks_is_bounded(lab: Lab) -> None:
    """Whatever it asks, what is kept of it is; what is no subject is passed over, and odd text ends
    the link. What it does not subscribe to, nobody waits for."""
    hub, _, _ = await wired(lab)
    [conn] = leaf_service(hub).links.conns.values()
    for number in range(1000):
        conn.halts.hold(b"* s%d" % number)
    assert conn.halts.count == len(conn.halts.held[b"*"]) == 65
    conn.halts.hold(b"b a..b")
    conn.halts.hold(b"c " + b"x" * 5000)
    assert not {b"b", b"c"} & set(conn.halts.held)
    for number in range(5000):
        conn.halts.hold(b"a%d s" % number)
    assert conn.halts.count == 1024
    speaking = await lab.client(client_port(hub))
    for _ in range(3):
        await speaking.publish("s0", b"")
        await speaking.flush(5)
    conn.session.got_info(conn, b'{"hold": 7}')
    await until(lambda: conn.closed)


@pytest.mark.parametrize("rotates", [False, True])
async def test_a_peer_that_holds_back_for_ever_is_passed_over(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, rotates: bool
) -> None:
    """A gateway that means harm asks for whatever there is, again and again. Who publishes waits
    for so long and no longer; nor does the gateway gain by other patterns, or by another link."""
    monkeypatch.setattr(halts, "HELD_S", 0.1)
    monkeypatch.setattr(halts, "PATIENCE_S", 1.0)
    port = free_port()
    hub = await lab.node(f'leafnodes {{ listen: "127.0.0.1:{port}" }}')
    links = leaf_service(hub).links
    told = [b"x.y", b"x.*", b"x.>", b"*.y"] if rotates else [b"x.>"]

    async def hold(writer: asyncio.StreamWriter) -> None:
        for turn in itertools.count():
            for number, pattern in enumerate(told):
                what = b"hold" if number == turn // 3 % len(told) else b"let_go"
                writer.write(b'INFO {"%b":"* %b"}\r\n' % (what, pattern))
            await silence(0.05)

    _, publisher = await opened(client_port(hub), b"")
    for link in range(2):
        _, writer = await opened(port, b"LS+ x.>\r\nPING\r\n", b'"headwater":1,')
        await until(lambda: hub.account("$G").has_interest(b"x.y"))
        [conn] = links.conns.values()
        if link == 0:
            holding = asyncio.ensure_future(hold(writer))
            await until(lambda conn=conn: shut(conn.halts))
            passed = conn.kernel.in_msgs
            for _ in range(2000):
                publisher.write(b"PUB x.y 1\r\n1\r\n")
            await until(lambda conn=conn: conn.halts.deaf)
            await until(lambda passed=passed: hub.kernel.in_msgs == passed + 2000)
            holding.cancel()
        assert conn.halts.deaf, "a new link of the same gateway, too"
        writer.close()
        await until(lambda: not links.conns)
    publisher.close()


async def test_a_reader_of_a_message_now_and_then_is_no_harm(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What passes of what is held back counts for the peer, however long it holds back."""
    monkeypatch.setattr(halts, "HELD_S", 0.1)
    monkeypatch.setattr(halts, "PATIENCE_S", 0.5)
    hub, edge, _ = await wired(lab)
    hearing = await lab.client(client_port(edge))
    await hearing.subscribe("x.>")
    await until(lambda: hub.account("$G").has_interest(b"x.y"))
    [conn] = leaf_service(hub).links.conns.values()
    reader, writer = await opened(client_port(hub), b"")
    begun = hub.loop.time()
    while hub.loop.time() - begun < 1.5:
        conn.halts.hold(b"* x.>")
        writer.write(b"PUB x.y 4000\r\n%b\r\nPING\r\n" % bytes(4000))
        pong = asyncio.ensure_future(reader.readuntil(b"PONG\r\n"))
        await silence(0.1)
        conn.halts.hold(b"* x.>")
        conn.halts.let_go(b"* x.>")
        await pong
    assert not conn.halts.deaf
    writer.close()


@pytest.mark.parametrize("ours", ["hub", "edge"])
async def test_with_nats_server_at_the_other_end_the_link_goes_on(lab: Lab, ours: str) -> None:
    """It cannot be asked. Its messages are read all the same, and a client that does not take them
    is cut, as nats-server cuts its own: for what it misses it is told, and others are not."""
    listen = 'leafnodes {{ listen: "127.0.0.1:{port}" }}'
    remote = 'leafnodes {{ remotes [ {{ url: "nats://127.0.0.1:{port}" }} ] }}'
    port = free_port()
    hub_text, edge_text = listen.format(port=port), remote.format(port=port)
    if ours == "hub":
        node = await lab.node(f"server_name: ours, max_pending: 8MB\n{hub_text}")
        real = await lab.real(edge_text)
    else:
        real = await lab.real(hub_text)
        node = await lab.node(f"server_name: ours, max_pending: 8MB\n{edge_text}")
    await until(lambda: leafs(node))
    asking = await served(lab, client_port(node), real.port)
    reader, slow = await opened(client_port(node), b"SUB slow.> 1\r\nPING\r\n")
    await reader.readuntil(b"PONG\r\n")
    _, writer = await opened(real.port, b"")
    publishing = asyncio.ensure_future(publish(writer, names(5), COUNT))
    await until(lambda: node.kernel.in_msgs > 1000)
    await asks(asking)
    await publishing
    assert leafs(node)
    with pytest.raises(asyncio.IncompleteReadError):
        await numbers(reader, COUNT)
    slow.close()
    writer.close()
