"""What the statistics of routed nodes say."""

from collections.abc import AsyncIterator

import pytest

from headwater.edge.monitor.pages.statsz import statsz
from tests.hub.routes.test_routes import Cluster


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
