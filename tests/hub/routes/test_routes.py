"""Clusters of nodes in one process, of core messages only."""

import asyncio
import contextlib
import json
import logging
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from bench.servers import free_port
from headwater.edge.conf.options import (
    AccountOptions,
    ClusterOptions,
    ExportOptions,
    ImportOptions,
    JetStreamOptions,
    LeafOptions,
    LeafRemoteOptions,
    Options,
    TLSOptions,
)
from headwater.edge.monitor.metrics import metrics
from headwater.edge.monitor.pages.links import routez
from headwater.edge.monitor.pages.varz import varz
from headwater.edge.node.node import Node
from headwater.federation.service import leaf_services
from headwater.hub.routes import dialer
from headwater.hub.routes.routes import TCP_RTO_MAX_MS, TRY_MS
from headwater.hub.routes.service import RouteService
from headwater.security.auth_options import AuthOptions, UserOptions
from tests.certificates import certificate
from tests.waiting import until


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialer, "RETRY_S", 0.05)


class Cluster:
    """Nodes that know one another's route ports, or only the first one's."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.ports: list[int] = []
        self.clients: list[Client] = []

    def add(self, *routes: int, cluster: dict[str, Any] | None = None, **fields: Any) -> Node:
        """Start one more node that dials the given route ports."""
        self.ports.append(free_port())
        settings = {
            "name": "C",
            "host": "127.0.0.1",
            "port": self.ports[-1],
            "routes": [f"nats-route://127.0.0.1:{port}" for port in routes],
            **(cluster or {}),
        }
        name = f"n{len(self.nodes)}"
        fields = {"host": "127.0.0.1", "port": -1, "server_name": name, **fields}
        options = Options(cluster=ClusterOptions(**settings), **fields)
        node = Node(options, asyncio.get_running_loop())
        node.services.extend(leaf_services(options))
        node.services.append(RouteService(options))
        node.start()
        self.nodes.append(node)
        return node

    async def formed(self, count: int = 0) -> None:
        """Wait until every node has a route to every other one."""
        others = (count or len(self.nodes)) - 1
        await until(lambda: all(complete(node, others) for node in self.nodes))

    async def connect(self, index: int, **options: Any) -> Client:
        url = self.nodes[index].ports()["nats"][0]
        client: Client = await nats.connect(url, allow_reconnect=False, **options)
        self.clients.append(client)
        return client

    async def stop(self) -> None:
        for client in self.clients:
            with contextlib.suppress(nats.errors.Error):
                await client.close()
        for node in self.nodes:
            await node.stop()


def routes(node: Node) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = routez(node)["routes"]
    return found


def complete(node: Node, others: int) -> bool:
    """Whether a node has all routes to that many other ones, and not one more."""
    wanted = per_pair(node)
    counts = Counter(route["remote_id"] for route in routes(node))
    return len(counts) == others and set(counts.values()) <= {wanted}


def per_pair(node: Node) -> int:
    """Routes between a node and each other one that is set as it is."""
    cluster = node.options.cluster
    if cluster.pool_size < 0:
        return 1
    return (cluster.pool_size or 3) + len({*cluster.accounts, "$SYS"})


def interest(node: Node, subject: bytes, account: str = "$G") -> bool:
    return node.account(account).has_interest(subject)


def heard_by(node: Node, subject: bytes) -> int:
    """How many take a message of this node: its subscriptions, and a route for each other node."""
    return len(node.account("$G").sinks(subject))


async def logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Wait until the log says so."""
    await until(lambda: any(text in record.getMessage() for record in caplog.records))


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    found = Cluster()
    yield found
    await found.stop()


async def full_mesh(cluster: Cluster, size: int = 3) -> None:
    first = cluster.add()
    for _ in range(size - 1):
        cluster.add(cluster.ports[0])
    await cluster.formed()
    assert first.facts.cluster == "C"


async def test_a_clock_that_is_set_changes_neither_uptime_nor_idle_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await full_mesh(cluster, 2)
    now = time.time()
    for years in (10, -10):
        monkeypatch.setattr(time, "time", lambda moved=years * 365 * 86400: now + moved)
        monkeypatch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))
        rows = routes(cluster.nodes[0])
        shown = [row[name] for row in rows for name in ("uptime", "idle")]
        assert shown and all(each.endswith("s") and "d" not in each for each in shown), shown


async def test_a_node_that_is_told_of_connects_itself(cluster: Cluster) -> None:
    await full_mesh(cluster, 4)
    urls = {node.facts.port for node in cluster.nodes}
    for node in cluster.nodes:
        assert {int(url.rpartition(":")[2]) for url in node.facts.connect_urls} == urls
        assert {route["remote_name"] for route in routes(node)} == {
            other.server_name for other in cluster.nodes if other is not node
        }


async def test_both_ends_dial_and_no_route_is_there_twice(cluster: Cluster) -> None:
    ports = [free_port(), free_port()]
    for port in ports:
        cluster.add(*ports, cluster={"port": port})
    await cluster.formed()
    first, second = (routes(node) for node in cluster.nodes)
    assert len(first) == len(second) == per_pair(cluster.nodes[0])
    dialled = [sum(route["did_solicit"] for route in side) for side in (first, second)]
    assert sum(dialled) == len(first)
    assert sorted(route.get("account", "") for route in first) == ["", "", "", "$SYS"]


async def test_messages_reach_every_node_once(cluster: Cluster) -> None:
    await full_mesh(cluster)
    got: list[tuple[int, bytes, Any]] = []
    for index in range(3):
        client = await cluster.connect(index)

        async def note(message: Any, index: int = index) -> None:
            got.append((index, message.data, message.headers))

        await client.subscribe("a.*", cb=note)
        await client.flush()
    await until(lambda: all(heard_by(node, b"a.x") == 3 for node in cluster.nodes))
    await cluster.clients[0].publish("a.x", b"plain")
    await cluster.clients[1].publish("a.y", b"with", headers={"k": "v"})
    for client in cluster.clients[:2]:
        # What a publisher says stays in order: nothing comes behind its end any more.
        await client.publish("a.end", b"end")
    await until(lambda: [data for _, data, _ in got].count(b"end") == 6)
    assert sorted((each for each in got if each[1] != b"end"), key=str) == sorted(
        [(i, b"plain", None) for i in range(3)] + [(i, b"with", {"k": "v"}) for i in range(3)],
        key=str,
    )


async def test_a_queue_group_gets_each_message_once(cluster: Cluster) -> None:
    await full_mesh(cluster)
    got: dict[int, int] = {1: 0, 2: 0}
    ended: set[int] = set()
    for index in got:

        async def note(message: Any, index: int = index) -> None:
            got[index] += 1

        async def note_end(message: Any, index: int = index) -> None:
            ended.add(index)

        worker = await cluster.connect(index)
        await worker.subscribe("q", queue="workers", cb=note)
        await worker.subscribe("end", cb=note_end)
    await until(lambda: all(heard_by(cluster.nodes[0], each) == 2 for each in (b"q", b"end")))
    client = await cluster.connect(0)
    for _ in range(100):
        await client.publish("q", b"")
    await client.publish("end", b"")
    await until(lambda: len(ended) == 2 and sum(got.values()) >= 100)
    assert sum(got.values()) == 100
    assert min(got.values()) > 20


async def test_every_address_of_a_name_is_tried(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add()
    dead = free_port()
    resolve = socket.getaddrinfo

    def two_addresses(host: str, port: int, *args: Any, **kinds: Any) -> Any:
        if host != "hub.example":
            return resolve(host, port, *args, **kinds)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", own)) for own in (dead, port)
        ]

    monkeypatch.setattr(socket, "getaddrinfo", two_addresses)
    cluster.add(cluster={"routes": [f"nats-route://hub.example:{cluster.ports[0]}"]})
    await cluster.formed()


async def test_local_members_of_a_queue_group_are_preferred(cluster: Cluster) -> None:
    await full_mesh(cluster, 2)
    near, far = [], []

    async def note_near(message: Any) -> None:
        near.append(message)

    async def note_far(message: Any) -> None:
        far.append(message)

    await (await cluster.connect(0)).subscribe("q", queue="g", cb=note_near)
    await (await cluster.connect(1)).subscribe("q", queue="g", cb=note_far)
    await until(lambda: len(cluster.nodes[0].account("$G").sinks(b"q")) == 2)
    for _ in range(20):
        await cluster.clients[0].publish("q", b"")
    await cluster.clients[0].flush()
    await until(lambda: len(near) == 20)
    assert not far


async def test_requests_cross_and_nobody_is_told_of(cluster: Cluster) -> None:
    await full_mesh(cluster, 2)
    service = await cluster.connect(1)

    async def answer(message: Any) -> None:
        await message.respond(b"yes")

    subscription = await service.subscribe("ask", cb=answer)
    await until(lambda: interest(cluster.nodes[0], b"ask"))
    client = await cluster.connect(0)
    assert (await client.request("ask", b"", timeout=2)).data == b"yes"
    await subscription.unsubscribe()
    await until(lambda: not interest(cluster.nodes[0], b"ask"))
    with pytest.raises(nats.errors.NoRespondersError):
        await client.request("ask", b"", timeout=2)


async def test_accounts_stay_apart(cluster: Cluster) -> None:
    accounts = {
        name: AccountOptions(name=name, users=[UserOptions(user=name, password="pw", account=name)])
        for name in ("A", "B")
    }
    cluster.add(accounts=accounts)
    cluster.add(cluster.ports[0], accounts=accounts)
    await cluster.formed()
    first = await cluster.connect(0, user="A", password="pw")
    second = await cluster.connect(0, user="B", password="pw")
    mine, other = await first.subscribe("x"), await second.subscribe("x")
    await until(lambda: all(interest(cluster.nodes[1], b"x", name) for name in accounts))
    client = await cluster.connect(1, user="A", password="pw")
    await client.publish("x", b"for A")
    assert (await mine.next_msg(2)).data == b"for A"
    with pytest.raises(nats.errors.TimeoutError):
        await other.next_msg(0.05)


async def test_an_imported_service_without_a_server_is_told_of(cluster: Cluster) -> None:
    accounts = {
        name: AccountOptions(name=name, users=[UserOptions(user=name, password="pw", account=name)])
        for name in ("A", "B")
    }
    accounts["B"].exports = [ExportOptions(kind="service", subject="ask")]
    accounts["A"].imports = [ImportOptions(kind="service", account="B", subject="ask", to="my.ask")]
    cluster.add(accounts=accounts)
    cluster.add(cluster.ports[0], accounts=accounts)
    await cluster.formed()
    client = await cluster.connect(0, user="A", password="pw")
    with pytest.raises(nats.errors.NoRespondersError):
        await client.request("my.ask", b"", timeout=2)

    async def answer(message: Any) -> None:
        await message.respond(b"from " + message.subject.encode())

    service = await cluster.connect(1, user="B", password="pw")
    await service.subscribe("ask", cb=answer)
    await until(lambda: interest(cluster.nodes[0], b"ask", "B"))
    assert (await client.request("my.ask", b"", timeout=2)).data == b"from ask"
    assert not interest(cluster.nodes[0], b"ask", "A")


async def test_clients_learn_of_nodes_that_come_and_go(cluster: Cluster) -> None:
    cluster.add()
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.nodes[0].facts.port)
    info = json.loads((await reader.readline())[5:])
    assert "connect_urls" not in info
    writer.write(b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
    assert await reader.readline() == b"PONG\r\n"
    await reader.readline()
    second = cluster.add(cluster.ports[0])
    info = json.loads((await asyncio.wait_for(reader.readline(), 2))[5:])
    assert len(info["connect_urls"]) == 2
    await second.stop()
    info = json.loads((await asyncio.wait_for(reader.readline(), 2))[5:])
    assert info["connect_urls"] == cluster.nodes[0].facts.connect_urls
    assert len(info["connect_urls"]) == 1
    writer.close()


async def test_a_node_about_to_leave_is_no_longer_offered(cluster: Cluster) -> None:
    cluster.add()
    leaver = cluster.add(cluster.ports[0], lame_duck_grace=0.3, lame_duck_duration=0.4)
    await cluster.formed()
    client = await cluster.connect(1)
    await client.flush()
    leaving = asyncio.create_task(leaver.lame_duck())
    await until(lambda: len(cluster.nodes[0].facts.connect_urls) == 1)
    assert leaver.facts.connect_urls == cluster.nodes[0].facts.connect_urls
    await leaving


async def test_a_line_that_is_back_is_soon_tried(cluster: Cluster) -> None:
    """Both ends have the system send again at once; else a route is still after a long cut."""
    with socket.socket() as plain:
        try:
            plain.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS, TRY_MS)
        except OSError:
            pytest.skip("this system does not know the option")
    await full_mesh(cluster, 2)
    for node in cluster.nodes:
        conns = [each for service in node.services if isinstance(service, RouteService)
                 for each in service.routes.conns.values()]  # fmt: skip
        assert conns
        for conn in conns:
            assert conn.sock.getsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS) == TRY_MS
            assert conn.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) > TRY_MS


async def test_a_route_comes_back_after_a_restart(cluster: Cluster) -> None:
    first = cluster.add()
    cluster.add(cluster.ports[0])
    await cluster.formed()
    await first.stop()
    await until(lambda: not routes(cluster.nodes[1]))
    cluster.nodes.pop(0)
    cluster.add(cluster={"port": cluster.ports[0]}, server_name="again")
    await cluster.formed()


async def test_credentials_of_routes(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    auth = {"authorization": AuthOptions(user="r", password="pw")}
    cluster.add(cluster=auth)
    port = cluster.ports[0]
    good = f"nats-route://r:pw@127.0.0.1:{port}"
    cluster.add(cluster={**auth, "routes": [good]})
    await cluster.formed()
    with caplog.at_level(logging.ERROR, "headwater.route"):
        cluster.add(port, server_name="stranger")
        await logged(caplog, "authentication error")
        # Each attempt is there until it is refused.
        await until(lambda: not routes(cluster.nodes[2]))


async def test_other_clusters_are_refused(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.add()
    with caplog.at_level(logging.ERROR, "headwater.route"):
        cluster.add(cluster.ports[0], cluster={"name": "D"})
        await logged(caplog, "conflicts")
    assert not routes(cluster.nodes[0])


async def test_a_made_up_cluster_name_gives_way(cluster: Cluster) -> None:
    cluster.add()
    unnamed = cluster.add(cluster.ports[0], cluster={"name": ""})
    await cluster.formed()
    assert unnamed.facts.cluster == "C"


async def test_routes_over_tls(cluster: Cluster, tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    tls = TLSOptions(cert_file=tls.cert_file, key_file=tls.key_file, ca_file=tls.cert_file)
    cluster.add(cluster={"tls": tls})
    cluster.add(cluster.ports[0], cluster={"tls": tls})
    await cluster.formed()
    subscription = await (await cluster.connect(0)).subscribe("x")
    await until(lambda: interest(cluster.nodes[1], b"x"))
    await (await cluster.connect(1)).publish("x", b"sealed" * 100_000)
    assert len((await subscription.next_msg(5)).data) == 600_000


async def test_interest_of_leaf_links_is_known_in_the_cluster(cluster: Cluster) -> None:
    leaf_port = free_port()
    cluster.add(leaf=LeafOptions(host="127.0.0.1", port=leaf_port))
    cluster.add(cluster.ports[0])
    await cluster.formed()
    remote = LeafRemoteOptions(urls=[f"nats://127.0.0.1:{leaf_port}"])
    options = Options(
        host="127.0.0.1", port=-1, server_name="spoke", leaf=LeafOptions(remotes=[remote])
    )
    spoke = Node(options, asyncio.get_running_loop())
    spoke.services.extend(leaf_services(options))
    spoke.start()
    try:
        far = await nats.connect(spoke.ports()["nats"][0])
        subscription = await far.subscribe("edge.>")
        await until(lambda: interest(cluster.nodes[1], b"edge.1"))
        await (await cluster.connect(1)).publish("edge.1", b"over two hops")
        assert (await subscription.next_msg(2)).data == b"over two hops"
        back = await cluster.clients[-1].subscribe("hub.>")
        await until(lambda: interest(spoke, b"hub.1"))
        await far.publish("hub.1", b"and back")
        assert (await back.next_msg(2)).data == b"and back"
        page = metrics(spoke)
        assert 'headwater_leaf_remote_up{server_id="spoke",account="$G",url="nats' in page
        assert 'gnatsd_leafz_conn_out_msgs{server_id="spoke",account="$G",name="n0"} 1' in page
        await far.close()
    finally:
        await spoke.stop()


async def test_monitoring_shows_routes(cluster: Cluster) -> None:
    await full_mesh(cluster, 2)
    numbers = varz(cluster.nodes[0])
    assert (numbers["routes"], numbers["remotes"]) == (per_pair(cluster.nodes[0]), 1)
    assert numbers["cluster"]["name"] == "C"
    assert cluster.nodes[0].ports()["cluster"] == [f"nats://127.0.0.1:{cluster.ports[0]}"]
    route, *_ = routes(cluster.nodes[1])
    assert route["remote_id"] == cluster.nodes[0].server_id
    assert route["is_configured"] is True


async def test_a_stream_is_used_from_a_node_without_jetstream(
    cluster: Cluster, tmp_path: Path
) -> None:
    settings = JetStreamOptions(enabled=True, store_dir=str(tmp_path))
    cluster.add(jetstream=settings)
    cluster.add(cluster.ports[0])
    await cluster.formed()
    await until(lambda: interest(cluster.nodes[1], b"$JS.API.INFO"))
    js = (await cluster.connect(1)).jetstream()
    await js.add_stream(name="S", subjects=["s.>"])
    await until(lambda: interest(cluster.nodes[1], b"s.1"))
    for number in range(10):
        await js.publish(f"s.{number}", b"x")
    puller = await js.pull_subscribe("s.>", durable="d")
    messages = await puller.fetch(10, timeout=2)
    assert [m.subject for m in messages] == [f"s.{number}" for number in range(10)]
    for message in messages:
        await message.ack_sync(timeout=2)
    pushed = await js.subscribe("s.>", ordered_consumer=True)
    assert (await pushed.next_msg(2)).subject == "s.0"


async def test_a_peer_makes_no_accounts_by_naming_them(cluster: Cluster) -> None:
    node = cluster.add()
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.ports[0])
    await reader.readline()
    told = {"server_id": "P", "server_name": "p", "cluster": "C", "headers": True}
    connect = {"name": "P", "cluster": "C", "headers": True}
    writer.write(f"CONNECT {json.dumps(connect)}\r\nINFO {json.dumps(told)}\r\n".encode())
    await until(lambda: len(routes(node)) == 1)
    before = set(node.accounts)
    for number in range(20_000):
        writer.write(f"RS+ made.up.{number} foo\r\nRMSG other.{number} foo 1\r\nx\r\n".encode())
    writer.write(b"RS- made.up.1 foo\r\nRS+ $G end\r\n")
    await until(lambda: interest(node, b"end"))
    assert set(node.accounts) == before
    [route] = [service for service in node.services if service.name == "routes"]
    [conn] = route.routes.conns.values()
    assert 0 < len(conn.aside) <= 16_384
    assert interest(node, b"foo", "made.up.0")
    assert not interest(node, b"foo", "made.up.1")
    writer.close()
