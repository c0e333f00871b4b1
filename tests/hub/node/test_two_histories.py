"""Nodes whose groups have lost what was acknowledged meet one that has it, or groups of two streams
have one number: none counts another's entries as its own, each keeps what it has, and says so."""

from pathlib import Path
from typing import Any

from headwater.hub.api.cluster import CONTRADICTED
from headwater.hub.cluster.driver import Driver
from headwater.hub.node.cluster_view import OF_A_NUMBER
from tests.hub.lab import Lab, api
from tests.hub.node.test_put_back import COUNT, Copies, fill, make
from tests.waiting import until

ODD = 2


def health(lab: Lab, index: int) -> str:
    """Everything that a node's health says."""
    return "\n".join(lab.cluster(index).jetstream.cluster_view.health())


def kept(lab: Lab, index: int, name: str) -> Any:
    """The store of a node's replica of a stream."""
    cluster = lab.cluster(index)
    known = cluster.state.stream("$G", name)
    assert known is not None
    return cluster.group.driver.store.replicas[known.assignment.group].store


async def test_a_member_with_other_committed_entries_stops_and_keeps_them(
    tmp_path: Path, lab: Lab
) -> None:
    """Two old copies lead; they take other messages than those that the third node has."""
    await lab.formed()
    client = await lab.connect(2)
    await make(client, "S", num_replicas=3)
    await fill(client, "S")
    copies = Copies(lab, tmp_path)
    await copies.keep(0, 1)
    await fill(client, "S")
    await copies.lead(0, 1)
    client = await lab.connect(0)

    async def answers() -> bool:
        return "state" in await api(client, "STREAM.INFO.S")

    await until(answers, "one of the copies leads the stream")
    for _ in range(4):
        await fill(client, "S")
    lab.start(ODD)
    driver: Driver = lab.cluster(ODD).group.driver
    known = lab.cluster(ODD).state.stream("$G", "S")
    assert known is not None
    number = known.assignment.group
    await until(lambda: number in driver.broken, "the third node's replica stops")
    assert "is committed here in term" in health(lab, ODD)
    assert lab.cluster(ODD).jetstream.cluster_view.totals()["groups_stopped"] >= 1
    assert kept(lab, ODD, "S").messages == 2 * COUNT
    await fill(client, "S")
    await lab.stop_node(1)
    left = lab.cluster(0).group.driver.multi_raft.groups[number]
    await until(lambda: not left.leader, "the stopped one is no part of a majority")
    assert kept(lab, ODD, "S").messages == 2 * COUNT


async def test_groups_of_two_streams_with_one_number_do_not_speak(
    tmp_path: Path, lab: Lab
) -> None:
    """As a version had it whose full disk used numbers up: S has on one node the number that T has
    on the others."""
    await lab.formed()
    client = await lab.connect(0)
    lab.cluster(ODD).state.rest.next_group += 1
    await make(client, "S", num_replicas=3)
    await make(client, "T", num_replicas=3)
    await fill(client, "T", "T", "T")
    await until(lambda: CONTRADICTED in health(lab, ODD), "the odd one says so")
    said = f"stream '$G > S' {OF_A_NUMBER % ''}".split(" on ")[0]
    await until(lambda: said in health(lab, ODD), "it names the stream")
    await fill(client, "S", "T")
    assert kept(lab, ODD, "S").messages == 0
    raft = lab.cluster(ODD).groups.groups[kept_group(lab, "S")].raft  # type: ignore[union-attr]
    assert raft is not None and not raft.leader, "it follows the leader of another stream"
    for index, count in ((0, 4 * COUNT), (1, 4 * COUNT)):
        await until(lambda index=index, count=count: kept(lab, index, "T").messages == count)
        assert kept(lab, index, "S").messages == COUNT


def kept_group(lab: Lab, name: str) -> int:
    """The number that a stream's group has on the odd node."""
    known = lab.cluster(ODD).state.stream("$G", name)
    assert known is not None
    return known.assignment.group
