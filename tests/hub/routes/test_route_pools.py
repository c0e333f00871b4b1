"""Pools, routes of single accounts and compression, with nats-server at the other end."""

import asyncio
import contextlib
import json
import os
import random
import signal
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest
from nats.aio.client import Client

from headwater.edge.conf.options import (
    AccountOptions,
    CompressionOptions,
    TLSOptions,
)
from headwater.edge.node.node import Node
from headwater.edge.node.reload import reload_node
from headwater.hub.routes import dialer
from headwater.hub.routes import routes as routes_of_node
from headwater.hub.routes.peer_routes import pool_index
from headwater.hub.routes.service import RouteService
from headwater.security.auth_options import UserOptions
from tests.certificates import certificate
from tests.hub.lab import Lab
from tests.hub.routes.anchor import Anchor
from tests.hub.routes.test_routes import Cluster, complete, interest, routes
from tests.slow import one_in, shared
from tests.waiting import silence, until

NAMES = ("A", "B", "C", "D")
ACCOUNTS = {
    name: AccountOptions(name=name, users=[UserOptions(user=name, password="pw", account=name)])
    for name in NAMES
}
THEIR_ACCOUNTS = (
    "accounts {"
    + ", ".join(f"{name}: {{users: [{{user: {name}, password: pw}}]}}" for name in NAMES)
    + "}"
)


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialer, "RETRY_S", 0.05)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    found = Cluster()
    yield found
    await found.stop()


def registry(node: Node) -> Any:
    [service] = [each for each in node.services if isinstance(each, RouteService)]
    assert service.routes is not None
    return service.routes


def kinds(found: list[dict[str, Any]]) -> Counter[str]:
    return Counter(route.get("account", "") for route in found)


# --- with nats-server --------------------------------------------------------

# Ours, theirs, the kinds of routes that must be there in the end, and their compression.
WAYS = [
    ({}, "", {"": 3, "$SYS": 1}, "off"),
    ({"pool_size": 5}, "pool_size: 2", {"": 5, "$SYS": 1}, "off"),
    ({"pool_size": 1}, "pool_size: 4", {"": 4, "$SYS": 1}, "off"),
    ({"pool_size": -1}, "", {"": 1}, "off"),
    ({}, "pool_size: -1", {"": 1}, "off"),
    ({"accounts": ["A", "B"]}, "accounts: [A, B]", {"": 3, "$SYS": 1, "A": 1, "B": 1}, "off"),
    ({"compression": "s2_fast"}, "", {"": 3, "$SYS": 1}, "s2_fast"),
    ({}, "compression: s2_better", {"": 3, "$SYS": 1}, "s2_better"),
    (
        {"compression": "s2_best", "accounts": ["A"]},
        "compression: s2_auto, accounts: [A]",
        {"": 3, "$SYS": 1, "A": 1},
        "s2_best",
    ),
    ({"compression": "s2_auto"}, "compression: s2_fast", {"": 3, "$SYS": 1}, "s2_uncompressed"),
    ({"compression": "off"}, "compression: s2_fast", {"": 3, "$SYS": 1}, "off"),
]


@pytest.mark.parametrize(
    ["way"],
    one_in(3, [(way,) for way in WAYS]),
    ids=[f"{ours}-{theirs}" for ours, theirs, _, _ in WAYS],
)
@pytest.mark.parametrize("who_dials", shared(["ours", "theirs", "both"], lambda who: who == "both"))
async def test_a_cluster_with_nats_server(
    cluster: Cluster, tmp_path: Path, who_dials: str, way: tuple[Any, ...]
) -> None:
    ours, theirs, wanted, compression = way
    settings = dict(ours)
    if "compression" in settings:
        settings["compression"] = CompressionOptions(mode=settings["compression"])
    anchor = Anchor(tmp_path, "theirs", [], theirs, THEIR_ACCOUNTS)
    dial = [] if who_dials == "theirs" else [anchor.route_port]
    node = cluster.add(*dial, cluster=settings, accounts=ACCOUNTS)
    if who_dials != "ours":
        text = anchor.config.read_text()
        place = node.ports()["cluster"][0]
        anchor.config.write_text(text.replace("routes: []", f"routes: [{place}]"))
    with anchor:
        await until(lambda: kinds(routes(node)) == wanted == kinds(anchor.routes()))
        await until(lambda: {r["compression"] for r in routes(node)} == {compression})
        for name in NAMES:
            await exchange(cluster, anchor, name)


async def exchange(cluster: Cluster, anchor: Anchor, name: str) -> None:
    """Messages in order, queue groups, requests and the end of interest, in both directions."""
    login: dict[str, Any] = {"user": name, "password": "pw", "allow_reconnect": False}
    near = await cluster.connect(0, user=name, password="pw")
    far = await nats.connect(anchor.url, **login)
    try:
        for sender, receiver in ((near, far), (far, near)):
            await in_order(sender, receiver)
            await queue_group(sender, receiver)
    finally:
        await far.close()
        await near.close()


async def in_order(sender: Client, receiver: Client) -> None:
    seen = await receiver.subscribe("s.*")
    await arrived(sender, receiver, "s.begin", seen)
    for number in range(300):
        await sender.publish(f"s.{number % 3}", b"%d" % number, headers={"n": str(number)})
    got = [await seen.next_msg(5) for _ in range(300)]
    assert [int(message.data) for message in got] == list(range(300))
    assert [message.headers["n"] for message in got] == [str(n) for n in range(300)]
    await seen.unsubscribe()
    await receiver.flush()
    async with asyncio.timeout(5):
        while True:
            try:
                await sender.request("s.1", b"", timeout=2)
            except nats.errors.NoRespondersError:
                return
            except nats.errors.TimeoutError:
                continue


async def arrived(sender: Client, receiver: Client, subject: str, seen: Any) -> None:
    """Publish until the interest of the receiver is known to the sender's node."""
    await receiver.flush()
    for _ in range(200):
        await sender.publish(subject, b"begin")
        try:
            await seen.next_msg(0.05)
            break
        except nats.errors.TimeoutError:
            continue
    else:
        raise AssertionError("the interest never arrived")
    await sender.publish(subject, b"end")
    while (await seen.next_msg(5)).data != b"end":
        continue


async def queue_group(sender: Client, receiver: Client) -> None:
    async def answer(message: Any) -> None:
        await message.respond(message.data + b"!")

    subscriptions = [await receiver.subscribe("ask", "q", cb=answer) for _ in range(2)]
    await receiver.flush()

    async def answered() -> Any:
        with contextlib.suppress(nats.errors.NoRespondersError, nats.errors.TimeoutError):
            return await sender.request("ask", b"one", timeout=0.5)
        return None

    reply = await until(answered, "interest in it has crossed")
    assert reply.data == b"one!"
    for number in range(20):
        assert (await sender.request("ask", b"%d" % number, timeout=5)).data == b"%d!" % number
    for subscription in subscriptions:
        await subscription.unsubscribe()
    await receiver.flush()


async def test_nodes_of_both_kinds_hear_of_one_another(cluster: Cluster, tmp_path: Path) -> None:
    """All dial one node of ours, which tells of the others: by the end everybody has all routes."""
    shared = {"pool_size": 2, "accounts": ["A"]}
    hub = cluster.add(cluster=shared, accounts=ACCOUNTS)
    cluster.add(cluster.ports[0], cluster=shared, accounts=ACCOUNTS)
    place = hub.ports()["cluster"][0]
    text = "pool_size: 2, accounts: [A]"
    with (
        Anchor(tmp_path, "t1", [place], text, THEIR_ACCOUNTS) as first,
        Anchor(tmp_path, "t2", [place], text, THEIR_ACCOUNTS) as second,
    ):
        for each in (first, second):
            await until(lambda each=each: kinds(each.routes()) == {"": 6, "A": 3, "$SYS": 3})
        await until(lambda: all(complete(node, 3) for node in cluster.nodes))
        await exchange(cluster, first, "A")
        await exchange(cluster, second, "B")


async def test_what_routez_says_is_what_nats_server_says(cluster: Cluster, tmp_path: Path) -> None:
    anchor = Anchor(tmp_path, "theirs", [], "accounts: [A]", THEIR_ACCOUNTS)
    node = cluster.add(anchor.route_port, cluster={"accounts": ["A"]}, accounts=ACCOUNTS)
    with anchor:
        await until(lambda: kinds(routes(node)) == {"": 3, "A": 1, "$SYS": 1})
        await until(lambda: all("ms" in r["rtt"] or "µs" in r["rtt"] for r in anchor.routes()))
        ours, theirs = routes(node), anchor.routes()
        for route in ours + theirs:
            route.pop("subscriptions_list", None)
        for name in ("", "A", "$SYS"):
            [mine, *_] = [r for r in ours if r.get("account", "") == name]
            [other, *_] = [r for r in theirs if r.get("account", "") == name]
            assert list(mine) == list(other)
            assert {k: type(v) for k, v in mine.items()} == {k: type(v) for k, v in other.items()}
            assert mine["did_solicit"] is mine["is_configured"] is True
            assert mine["compression"] == other["compression"] == "off"


async def test_an_account_that_nats_server_gives_a_route_by_reload(
    cluster: Cluster, tmp_path: Path
) -> None:
    anchor = Anchor(tmp_path, "theirs", [], "pool_size: 2", THEIR_ACCOUNTS)
    node = cluster.add(anchor.route_port, cluster={"pool_size": 2}, accounts=ACCOUNTS)
    with anchor:
        await until(lambda: kinds(routes(node)) == {"": 2, "$SYS": 1})
        await exchange(cluster, anchor, "A")
        text = anchor.config.read_text()
        anchor.config.write_text(text.replace("pool_size: 2", "pool_size: 2, accounts: [A]"))
        anchor.signal(signal.SIGHUP)
        await until(lambda: kinds(routes(node)) == {"": 2, "$SYS": 1, "A": 1})
        await exchange(cluster, anchor, "A")


async def test_a_route_that_stalls_is_cut(cluster: Cluster, tmp_path: Path) -> None:
    anchor = Anchor(tmp_path, "theirs", [])
    node = cluster.add(anchor.route_port, cluster={"ping_interval": 0.1, "ping_max": 2})
    with anchor:
        await until(lambda: complete(node, 1))
        client = await nats.connect(anchor.url)
        await client.subscribe("x.>")
        await client.flush()
        await until(lambda: interest(node, b"x.1"))
        anchor.signal(signal.SIGSTOP)
        try:
            await until(lambda: not routes(node))
            assert not interest(node, b"x.1")
        finally:
            anchor.signal(signal.SIGCONT)
        await until(lambda: complete(node, 1) and interest(node, b"x.1"))
        await client.close()


@pytest.mark.parametrize("who_dials", ["ours", "theirs"])
async def test_tls_and_compression_with_nats_server(
    cluster: Cluster, tmp_path: Path, who_dials: str
) -> None:
    tls = certificate(tmp_path)
    tls = TLSOptions(cert_file=tls.cert_file, key_file=tls.key_file, ca_file=tls.cert_file)
    block = f'tls {{ cert_file: "{tls.cert_file}", key_file: "{tls.key_file}", '
    block += f'ca_file: "{tls.ca_file}", verify: true }}, compression: s2_fast'
    anchor = Anchor(tmp_path, "theirs", [], block, THEIR_ACCOUNTS)
    dial = [anchor.route_port] if who_dials == "ours" else []
    node = cluster.add(*dial, cluster={"tls": tls}, accounts=ACCOUNTS)
    if who_dials == "theirs":
        text = anchor.config.read_text()
        place = node.ports()["cluster"][0]
        anchor.config.write_text(text.replace("routes: []", f"routes: [{place}]"))
    with anchor:
        await until(lambda: complete(node, 1))
        assert {route["compression"] for route in routes(node)} == {"s2_fast"}
        await exchange(cluster, anchor, "A")


# --- among ourselves ---------------------------------------------------------


async def test_over_tls_a_node_that_is_told_of_has_the_name_of_the_others(
    cluster: Cluster, tmp_path: Path
) -> None:
    tls = certificate(tmp_path, "localhost")
    tls = TLSOptions(cert_file=tls.cert_file, key_file=tls.key_file, ca_file=tls.cert_file)
    cluster.add(cluster={"tls": tls})
    url = f"nats-route://localhost:{cluster.ports[0]}"
    for _ in range(2):
        cluster.add(cluster={"tls": tls, "routes": [url]})
    await cluster.formed()


async def test_a_peer_without_a_certificate_is_no_route(cluster: Cluster, tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    tls = TLSOptions(cert_file=tls.cert_file, key_file=tls.key_file, ca_file=tls.cert_file)
    node = cluster.add(cluster={"tls": tls})
    context = ssl.create_default_context(cafile=tls.ca_file)
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.ports[0], ssl=context)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        if not await asyncio.wait_for(reader.read(), 5):
            raise ConnectionError
    assert not registry(node).conns
    writer.close()


def test_places_in_the_pool_are_those_of_nats_server() -> None:
    # FNV-1a of 32 bits: the first is its published value, 0xe40c292c.
    assert pool_index(1 << 33, b"a") == 0xE40C292C
    assert pool_index(3, b"a") == 0xE40C292C % 3
    assert pool_index(0, b"a") == pool_index(1, b"a") == 0


async def test_any_number_of_restarts_leaves_no_route_twice_or_missing(cluster: Cluster) -> None:
    chance = random.Random(7)
    shared = {"accounts": ["A"], "pool_size": 2}
    for _ in range(4):
        cluster.add(*cluster.ports, cluster=shared, accounts=ACCOUNTS)
    ports = list(cluster.ports)
    for number in range(12):
        victim = chance.randrange(4)
        await cluster.nodes[victim].stop()
        if chance.random() < 0.5:
            await until(lambda: any(routes(node) for node in cluster.nodes))
        settings = {**shared, "port": ports[victim], "routes": places(ports, victim)}
        started = cluster.add(cluster=settings, accounts=ACCOUNTS, server_name=f"again{number}")
        cluster.nodes.remove(started)
        cluster.nodes[victim] = started
    await until(lambda: all(complete(node, 3) for node in cluster.nodes))
    # What both have dialled for is ended by either, and nothing else is left.
    await until(lambda: all(len(registry(node).conns) == 3 * 4 for node in cluster.nodes))
    for node in cluster.nodes:
        assert kinds(routes(node)) == {"": 6, "A": 3, "$SYS": 3}
    client = await cluster.connect(0, user="A", password="pw")
    subscription = await client.subscribe("left")
    await until(lambda: all(interest(node, b"left", "A") for node in cluster.nodes))
    await subscription.unsubscribe()
    await until(lambda: not any(interest(node, b"left", "A") for node in cluster.nodes))
    await cluster.nodes[0].stop()
    rest = cluster.nodes[1:]
    await until(lambda: all(complete(node, 2) for node in rest))


def places(ports: list[int], but: int) -> list[str]:
    return [f"nats-route://127.0.0.1:{port}" for i, port in enumerate(ports) if i != but]


async def test_one_route_that_ends_is_made_again(cluster: Cluster) -> None:
    cluster.add()
    node = cluster.add(cluster.ports[0])
    await cluster.formed()
    client = await cluster.connect(0)
    seen = await client.subscribe("x")
    await until(lambda: interest(node, b"x"))
    peer = registry(node).peers[cluster.nodes[0].server_id]
    carrier = peer.carrier("$G", pool_index(3, b"$G"), registry(node).pinned)
    carrier.close("Test")
    assert not interest(node, b"x")
    await cluster.formed()
    await until(lambda: interest(node, b"x"))
    await (await cluster.connect(1)).publish("x", b"again")
    assert (await seen.next_msg(5)).data == b"again"


@pytest.mark.parametrize("change", ["pool_size", "compression"])
async def test_a_reload_makes_the_routes_anew(cluster: Cluster, change: str) -> None:
    cluster.add()
    node = cluster.add(cluster.ports[0])
    await cluster.formed()
    value: Any = 1 if change == "pool_size" else CompressionOptions(mode="s2_fast")
    for each in cluster.nodes:
        wanted = msgspec.structs.replace(each.options.cluster, **{change: value})
        reload_node(each, msgspec.structs.replace(each.options, cluster=wanted))
    await cluster.formed()
    assert kinds(routes(node)) == {"": 1 if change == "pool_size" else 3, "$SYS": 1}
    if change == "compression":
        assert {route["compression"] for route in routes(node)} == {"s2_fast"}


@pytest.mark.parametrize("index", [256, -1, 3])
async def test_a_place_that_is_not_in_the_pool_is_refused(cluster: Cluster, index: int) -> None:
    node = cluster.add()
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.ports[0])
    await reader.readline()
    told = {"server_id": "P", "cluster": "C", "route_pool_size": 3, "route_pool_idx": index}
    writer.write(b'CONNECT {"cluster":"C"}\r\nINFO ' + json.dumps(told).encode() + b"\r\n")
    assert b"Invalid route pool index" in await asyncio.wait_for(reader.read(), 5)
    assert not routes(node)
    writer.close()


async def test_raft_goes_over_pools_and_compressed_routes(tmp_path: Path) -> None:
    """A cluster of three with replicas: streams are made, published to, led by others, and every
    route is cut in turn."""
    lab = Lab(tmp_path, routing={"compression": CompressionOptions(mode="s2_fast"), "pool_size": 2})
    try:
        await lab.formed()
        client = await lab.connect(0)
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s.>"], num_replicas=3)
        acked = 0
        for number in range(300):
            acked = await published(js, f"s.{number}")
            if number % 25 == 24:
                cut(lab, number // 25)
        assert acked >= 300
        # The last cut may take a question with it.
        await until(lambda: asked(js), "an answer")
        info = await js.stream_info("S")
        assert info.state.messages == info.state.last_seq >= 300
    finally:
        await lab.stop()


async def asked(js: Any) -> bool:
    """Whether the stream answers."""
    with contextlib.suppress(nats.js.errors.NoStreamResponseError, nats.errors.Error):
        await js.stream_info("S")
        return True
    return False


async def published(js: Any, subject: str) -> int:
    """Publish until it is acked: while a route is missing, a publisher hears that nobody is there,
    or hears nothing. Returns the sequence."""

    async def acked() -> Any:
        with contextlib.suppress(
            nats.js.errors.NoStreamResponseError,
            nats.js.errors.ServiceUnavailableError,
            nats.errors.TimeoutError,
        ):
            return await js.publish(subject, os.urandom(200) + bytes(2000), timeout=2)
        return None

    return int((await until(acked, "an ack")).seq)


def cut(lab: Lab, number: int) -> None:
    """End one route of one node."""
    node = lab.nodes[number % 3]
    assert node is not None
    conns = list(registry(node).conns.values())
    conns[number % len(conns)].close("Test")


async def test_a_fence_comes_back_behind_everything(cluster: Cluster, tmp_path: Path) -> None:
    """What was said on any route before the fence is known when it is back."""
    cluster.add(accounts=ACCOUNTS)
    node = cluster.add(cluster.ports[0], accounts=ACCOUNTS)
    await cluster.formed()
    clients = [await cluster.connect(0, user=name, password="pw") for name in NAMES]
    for round_ in range(20):
        for client in clients:
            await client.subscribe(f"r.{round_}")
            await client.flush()
        await registry(cluster.nodes[0]).fence(node.server_id)
        assert all(interest(node, b"r.%d" % round_, name) for name in NAMES)


async def test_a_route_that_a_peer_has_given_up_makes_room(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer uses the route that we dialled, then hears no more of it and dials itself: what is
    in use stays, and goes when it says nothing."""
    monkeypatch.setattr(routes_of_node, "DOUBT_S", 0.3)
    told = {"server_id": "P", "server_name": "p", "cluster": "C", "headers": True}
    info = f"INFO {json.dumps(told)}\r\n".encode()
    silent = asyncio.Event()
    opened: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        writer.write(info)
        while line := await reader.readline():
            if line.startswith(b"PING") and not silent.is_set():
                writer.write(b"PONG\r\n")

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        node = cluster.add(server.sockets[0].getsockname()[1])
        await until(lambda: len(routes(node)) == 1)
        (first,) = registry(node).conns.values()
        await until(lambda: first.session.accepted)
        connect = f"CONNECT {json.dumps({'name': 'P', 'cluster': 'C', 'headers': True})}\r\n"

        async def dial() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", cluster.ports[0])
            await reader.readline()
            writer.write(connect.encode() + info + b"PING\r\n")
            return reader, writer

        reader, writer = await dial()
        assert b"PONG" not in await reader.read(), "it is superfluous"
        writer.close()
        await silence(0.6)
        assert not first.closed, "the first one answered"
        silent.set()
        reader, writer = await dial()
        await reader.read()
        writer.close()
        await until(lambda: first.closed, "nobody answers on the first one")
        for each in opened:
            each.close()
        reader, writer = await dial()
        async with asyncio.timeout(5):
            while not (await reader.readline()).startswith(b"PONG"):
                pass
        writer.close()
