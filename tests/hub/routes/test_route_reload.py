"""Reloads of `cluster`: routes, accounts with a route of their own, and permissions."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.edge.node.node import Node
from headwater.edge.node.reload import reload_node
from headwater.hub.routes import dialer
from headwater.security.auth_options import PermissionOptions, SubjectRules
from tests.hub.routes.anchor import Anchor
from tests.hub.routes.test_route_pools import ACCOUNTS, THEIR_ACCOUNTS, exchange, kinds, registry
from tests.hub.routes.test_routes import Cluster, complete, interest, routes
from tests.waiting import until


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialer, "RETRY_S", 0.05)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    found = Cluster()
    yield found
    await found.stop()


def reload(node: Node, **changes: Any) -> None:
    """Put another `cluster` block into force."""
    wanted = msgspec.structs.replace(node.options.cluster, **changes)
    reload_node(node, msgspec.structs.replace(node.options, cluster=wanted))


async def test_a_route_is_added_and_removed(cluster: Cluster, tmp_path: Path) -> None:
    """As with nats-server: the new address is dialled, of the old one the routes end."""
    anchor = Anchor(tmp_path, "theirs", [], "", THEIR_ACCOUNTS)
    node = cluster.add(accounts=ACCOUNTS)
    with anchor:
        await until(lambda: anchor.page("varz"))
        reload(node, routes=[f"nats-route://127.0.0.1:{anchor.route_port}"])
        await until(lambda: complete(node, 1))
        await exchange(cluster, anchor, "A")
        reload(node, routes=[])
        await until(lambda: not routes(node) and not anchor.routes())
        assert not registry(node).dialers
        reload(node, routes=[f"nats-route://127.0.0.1:{anchor.route_port}"])
        await until(lambda: complete(node, 1))
        await exchange(cluster, anchor, "B")


async def test_an_address_that_stays_keeps_its_routes(cluster: Cluster) -> None:
    """What another node is reached by goes on while the list changes around it."""
    first = cluster.add()
    node = cluster.add(cluster.ports[0])
    await cluster.formed()
    before = set(registry(node).conns)
    kept = node.options.cluster.routes
    third = cluster.add()
    reload(node, routes=[*kept, f"nats-route://127.0.0.1:{cluster.ports[2]}"])
    await cluster.formed()
    assert before <= set(registry(node).conns)
    assert all(complete(each, 2) for each in (first, third))


async def test_a_new_node_is_added_while_it_is_away(cluster: Cluster) -> None:
    """The list may name a node before it is there."""
    node = cluster.add()
    later = cluster.add()
    [port] = cluster.ports[1:]
    await later.stop()
    cluster.nodes.remove(later)
    reload(node, routes=[f"nats-route://127.0.0.1:{port}"])
    await until(lambda: registry(node).unanswered())
    cluster.add(cluster={"port": port})
    await until(lambda: complete(node, 1))


async def test_accounts_get_a_route_of_their_own(cluster: Cluster) -> None:
    cluster.add(accounts=ACCOUNTS)
    node = cluster.add(cluster.ports[0], accounts=ACCOUNTS)
    await cluster.formed()
    for names, found in ((["A"], {"A": 1}), ([], {}), (["B", "C"], {"B": 1, "C": 1})):
        for each in cluster.nodes:
            reload(each, accounts=names)
        await until(lambda found=found: kinds(routes(node)) == {"": 3, "$SYS": 1} | found)
        for name in ("A", "B"):
            await crosses(cluster, name)


async def test_accounts_of_a_nats_server_get_a_route(cluster: Cluster, tmp_path: Path) -> None:
    """Whoever has it first waits for the other."""
    anchor = Anchor(tmp_path, "theirs", [], "pool_size: 2", THEIR_ACCOUNTS)
    node = cluster.add(anchor.route_port, cluster={"pool_size": 2}, accounts=ACCOUNTS)
    with anchor:
        await until(lambda: kinds(routes(node)) == {"": 2, "$SYS": 1})
        reload(node, accounts=["A"])
        await until(lambda: kinds(routes(node))[""] == 2)
        text = anchor.config.read_text()
        anchor.config.write_text(text.replace("pool_size: 2", "pool_size: 2, accounts: [A]"))
        anchor.signal(signal.SIGHUP)
        await until(lambda: kinds(routes(node)) == {"": 2, "$SYS": 1, "A": 1})
        await exchange(cluster, anchor, "A")


async def test_permissions_of_routes_change(cluster: Cluster) -> None:
    """What may leave goes by the new rules, and what was held back is told of."""
    cluster.add()
    node = cluster.add(cluster.ports[0])
    await cluster.formed()
    client = await cluster.connect(0)
    await client.subscribe("open")
    await client.subscribe("shut")
    await client.flush()
    await until(lambda: interest(node, b"open") and interest(node, b"shut"))
    shut = PermissionOptions(publish=SubjectRules(deny=["shut"]))
    reload(cluster.nodes[0], permissions=shut)
    await until(lambda: interest(node, b"open") and not interest(node, b"shut"))
    reload(cluster.nodes[0], permissions=None)
    await until(lambda: interest(node, b"open") and interest(node, b"shut"))


async def crosses(cluster: Cluster, name: str) -> None:
    """What one node's client publishes, another one's hears."""
    there = await cluster.connect(0, user=name, password="pw")
    heard = await there.subscribe("x")
    await there.flush()
    await until(lambda: interest(cluster.nodes[1], b"x", name))
    here = await cluster.connect(1, user=name, password="pw")
    await here.publish("x", name.encode())
    assert (await asyncio.wait_for(heard.next_msg(), 5)).data == name.encode()
    await there.close()
    await until(lambda: not interest(cluster.nodes[1], b"x", name))
