"""Which version of entries leaders may write, while nodes of two versions are in a cluster."""

from collections.abc import Iterator

import msgspec
import pytest

from headwater.hub.meta.founding import Hello
from tests.hub.meta.meta_cluster import MetaCluster, MetaNode


class Versions(MetaCluster):
    """Nodes that know what they are said to know."""

    def know(self, node: MetaNode, version: int) -> None:
        """Set the newest version of entries that a node knows from now on."""
        describe = MetaNode.describe

        def described() -> Hello:
            return msgspec.structs.replace(describe(node), entries=version)

        node.describe = described  # type: ignore[method-assign]
        node.founding.describe = described

    def restart(self, node: MetaNode, version: int) -> None:
        """One node after the other gets another program."""
        node.crash("nothing")
        node.open()
        self.know(node, version)
        self.formed()

    def raised(self, version: int) -> bool:
        """Whether all nodes know that a version may be written."""
        return all(node.state.rest.entries == version for node in self.nodes.values())


@pytest.fixture
def cluster() -> Iterator[Versions]:
    found = Versions(3, 1)
    found.formed()
    yield found


def test_a_version_is_written_when_the_last_node_knows_it(cluster: Versions) -> None:
    nodes = list(cluster.nodes.values())
    assert cluster.raised(1)
    for node in nodes[:2]:
        cluster.restart(node, 2)
        cluster.sleep(5)
        assert cluster.raised(1)
    cluster.restart(nodes[2], 2)
    cluster.wait(lambda: cluster.raised(2), 30)
    # It is kept over a stop of everything, and when a member knows less again.
    for node in nodes:
        node.crash("nothing")
    for node in nodes:
        node.open()
        cluster.know(node, 2)
    cluster.formed()
    cluster.restart(nodes[0], 1)
    cluster.sleep(5)
    assert cluster.raised(2)


def test_a_node_that_knows_too_little_is_not_taken_in(
    cluster: Versions, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = list(cluster.nodes.values())
    for node in nodes:
        cluster.restart(node, 2)
    cluster.wait(lambda: cluster.raised(2), 30)
    leader = cluster.formed()
    old = next(node for node in nodes if node is not leader)
    old.crash("nothing")
    cluster.sleep(5)
    removal = cluster.run(leader.group.remove(old.number))
    cluster.wait(removal.done, 10)
    old.wipe()
    cluster.know(old, 1)
    old.open()
    cluster.sleep(20)
    assert old.number not in leader.group.members
    assert "is not taken into the JetStream cluster" in caplog.text
    cluster.know(old, 2)
    cluster.formed()
    assert cluster.raised(2)
