"""A node whose metadata is not what the others have says so, and what helps."""

import shutil
from pathlib import Path

from headwater.hub.api.cluster import CONTRADICTED
from tests.hub.lab import Lab, api
from tests.waiting import until

ODD = 2


def says_it(lab: Lab) -> list[bool]:
    """Whether each node's health says that the others contradict it."""
    return [CONTRADICTED in each.jetstream.cluster_view.health() for each in lab.clusters()]


async def test_a_node_with_another_group_number_says_so_and_comes_back(
    tmp_path: Path, lab: Lab
) -> None:
    """As a version had it whose full disk used numbers up."""
    await lab.formed()
    client = await lab.connect(0)
    lab.cluster(ODD).state.rest.next_group += 1
    made = await api(client, "STREAM.CREATE.S", name="S", subjects=["s"], num_replicas=3)
    assert "error" not in made, made
    await client.jetstream().publish("s", b"1")
    await until(lambda: says_it(lab) == [False, False, True], "one node says so")
    await lab.stop_node(ODD)
    shutil.rmtree(tmp_path / f"n{ODD}")
    lab.start(ODD)

    async def whole() -> bool:
        place = (await api(client, "STREAM.INFO.S"))["cluster"]
        return [row["current"] for row in place["replicas"]] == [True, True]

    await until(whole, "its replica is there")
    await until(lambda: says_it(lab) == [False] * 3, "nobody says so any more")
    assert lab.cluster(ODD).jetstream.cluster_view.health() == []
