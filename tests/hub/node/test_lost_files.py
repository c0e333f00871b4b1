"""Files of nodes are lost while they are away: what a majority had is there again, what is lost is
said, and the nodes are members again."""

import shutil
from pathlib import Path

from headwater.hub.node.cluster_view import LACKS
from tests.hub.lab import Lab, api
from tests.hub.node.test_put_back import COUNT, fill, make
from tests.waiting import until


def lose_log(path: Path, index: int) -> None:
    """The commit log of a node that does not run is gone."""
    shutil.rmtree(path / f"n{index}" / "jetstream" / "log")


async def whole(lab: Lab, count: int) -> None:
    """Wait until all nodes are members, and each replica of S has everything."""
    await lab.settled(3)
    client = await lab.connect(0)

    async def is_whole() -> bool:
        info = await api(client, "STREAM.INFO.S")
        current = [row["current"] for row in info.get("cluster", {}).get("replicas", [])]
        return info.get("state", {}).get("messages") == count and current == [True, True]

    await until(is_whole, "each replica is whole")
    for cluster in lab.clusters():
        health = cluster.jetstream.cluster_view.health
        await until(lambda health=health: "leader" not in str(health()), "each knows its leader")


def gaps(lab: Lab) -> list[str]:
    """What nodes say of entries that may be gone."""
    return [gap for cluster in lab.clusters() for gap in cluster.jetstream.cluster_view.gaps()]


async def test_a_node_whose_log_is_gone_is_a_member_again(tmp_path: Path, lab: Lab) -> None:
    await lab.formed()
    client = await lab.connect(0)
    await make(client, "S", num_replicas=3)
    await make(client, "ALONE", placement={"tags": ["az:2"]})
    await fill(client, "S", "ALONE")
    await lab.stop_node(2)
    lose_log(tmp_path, 2)
    lab.start(2)
    await fill(client, "S")
    await whole(lab, 2 * COUNT)
    assert gaps(lab) == []
    assert (await api(client, "STREAM.INFO.ALONE"))["state"]["messages"] == COUNT


async def test_the_last_node_that_knows_the_cluster_is_enough(tmp_path: Path, lab: Lab) -> None:
    await lab.formed()
    client = await lab.connect(0)
    await make(client, "S", num_replicas=3)
    await fill(client, "S")
    for index in (1, 2):
        await lab.stop_node(index)
    rafts = lab.cluster(0).group.driver.multi_raft.groups.values()
    await until(lambda: not any(raft.leader for raft in rafts), "nobody leads any group")
    for index in (1, 2):
        lose_log(tmp_path, index)
        lab.start(index)
    await whole(lab, COUNT)
    # What these two had acknowledged without the third is gone, and nobody knows whether there was
    # something.
    assert any("stream '$G > S'" in gap for gap in gaps(lab))
    pages = [cluster.jetstream.cluster_view for cluster in lab.clusters()]
    assert any(LACKS in problem for page in pages for problem in page.status()["problems"])
