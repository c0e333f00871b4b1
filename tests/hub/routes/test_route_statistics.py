"""What the statistics of routed nodes say."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest

from headwater.edge.kernel.kernel import CallbackSink
from headwater.edge.monitor.pages.links import RoutezOptions, routez
from headwater.edge.monitor.pages.statsz import statsz
from headwater.edge.system import account_counts
from tests.hub.routes.test_routes import Cluster
from tests.waiting import until


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    found = Cluster()
    yield found
    await found.stop()


async def test_statistics_list_the_routes(cluster: Cluster) -> None:
    first = cluster.add()
    cluster.add(*cluster.ports)
    await cluster.formed()
    route, *others = statsz(first)["routes"]
    assert len(others) == 3
    assert set(route) == {"rid", "name", "sent", "received", "pending"}
    assert route["name"] == "n1"
    assert set(route["sent"]) == set(route["received"]) == {"msgs", "bytes"}


async def test_subscriptions_are_listed_only_for_who_asks_for_them(cluster: Cluster) -> None:
    """There may be a million, and statistics are told every ten seconds."""
    first = cluster.add()
    cluster.add(*cluster.ports)
    await cluster.formed()
    listed = routez(first, RoutezOptions(subscriptions=True))["routes"]
    assert all(len(one["subscriptions_list"]) == one["subscriptions"] for one in listed)
    assert all("subscriptions_list" not in one for one in routez(first)["routes"])


async def test_servers_that_are_all_new_are_asked_once_about_each_account(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question goes to all of them: one for each new server would be asked by each, of all."""
    monkeypatch.setattr(account_counts, "ASK_S", 0.5)
    asked: Counter[bytes] = Counter()

    def hear(subject: bytes, reply: bytes, *_: object) -> None:
        assert subject == b"$SYS.REQ.ACCOUNT.$G.CONNS"
        asked[reply] += 1

    nodes = [cluster.add(*cluster.ports) for _ in range(4)]
    nodes[0].account("$SYS").insert(CallbackSink(b"$SYS.REQ.ACCOUNT.*.CONNS", hear))
    await cluster.formed()
    for index in range(4):
        await cluster.connect(index)
    await until(lambda: len(asked) == 4, "each node has asked")
    assert set(asked.values()) == {1}
