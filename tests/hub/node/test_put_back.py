"""A node's folder is put back from an older copy. Nothing is lost without a word, nothing is
made anew under the same sequences, no vote of before counts, and no replica passes for another."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from headwater.hub.meta.starts import PUT_BACK, PUT_BACK_STREAM
from headwater.hub.node.cluster_view import STRANGER
from headwater.hub.streams.stream_groups import OTHER_STREAM
from tests.hub.lab import Lab, api
from tests.waiting import until

COUNT = 5


async def make(client: Client, name: str, **fields: Any) -> None:
    """Make a stream. Asserts that it is."""
    made = await api(client, f"STREAM.CREATE.{name}", name=name, **fields)
    assert "error" not in made, made


async def fill(client: Client, *names: str) -> None:
    """Some messages more."""
    for name in names:
        for _ in range(COUNT):
            await client.jetstream().publish(name, b"x", timeout=20)


class Copies:
    """Older copies of nodes' folders."""

    def __init__(self, lab: Lab, path: Path) -> None:
        self.lab = lab
        self.path = path

    async def keep(self, *indexes: int) -> None:
        """Copy the folders of nodes, which stop and start again."""
        for index in indexes:
            await self.lab.stop_node(index)
        for index in indexes:
            shutil.copytree(self.path / f"n{index}", self.path / f"old{index}")
        for index in indexes:
            self.lab.start(index)
        await self.lab.settled(3)

    def put_back(self, index: int) -> None:
        """Of a node that does not run."""
        shutil.rmtree(self.path / f"n{index}")
        (self.path / f"old{index}").rename(self.path / f"n{index}")

    async def lead(self, *indexes: int) -> None:
        """Stop all nodes, and start these on their copies, until one leads."""
        for index in range(len(self.lab.nodes)):
            await self.lab.stop_node(index)
        for index in indexes:
            self.put_back(index)
            self.lab.start(index)
        await until(lambda: self.lab.leader() is not None, "the copies lead")


def says_it(lab: Lab) -> list[bool]:
    """Whether each running node's health says that its folder is an older copy."""
    return [PUT_BACK in each.jetstream.cluster_view.health() for each in lab.clusters()]


async def test_streams_that_the_copy_lacks_are_not_made_anew(tmp_path: Path, lab: Lab) -> None:
    await lab.formed()
    client = await lab.connect(2)
    here: dict[str, Any] = {"placement": {"tags": ["az:0"]}}
    for name in ("OLD", "AGAIN", "GONE"):
        await make(client, name, **here)
    await make(client, "THREE", num_replicas=3)
    await fill(client, "OLD", "AGAIN", "GONE", "THREE")
    copies = Copies(lab, tmp_path)
    await copies.keep(0)
    for name in ("AGAIN", "GONE"):
        await api(client, f"STREAM.DELETE.{name}")
    await make(client, "AGAIN", **here)
    await make(client, "NEW", **here)
    await fill(client, "OLD", "AGAIN", "NEW", "THREE")
    await lab.stop_node(0)
    copies.put_back(0)
    lab.start(0)
    await lab.settled(3)
    await until(lambda: says_it(lab) == [True, False, False], "the node says so")

    async def offline(name: str) -> bool:
        error = (await api(client, f"STREAM.INFO.{name}")).get("error", {})
        return error.get("err_code") == 10194 and PUT_BACK_STREAM in error["description"]

    for name in ("AGAIN", "NEW"):
        await until(lambda name=name: offline(name), f"{name} is offline")

    async def whole() -> bool:
        info = await api(client, "STREAM.INFO.THREE")
        current = [row["current"] for row in info["cluster"]["replicas"]]
        return info["state"]["messages"] == 2 * COUNT and current == [True, True]

    await until(whole, "the replica is whole")
    assert (await api(client, "STREAM.INFO.GONE"))["error"]["err_code"] == 10059
    assert (await api(client, "STREAM.INFO.OLD"))["state"]["messages"] == COUNT
    await api(client, "STREAM.DELETE.NEW")
    await make(client, "NEW", **here)
    await fill(client, "NEW")
    await lab.stop_node(0)
    lab.start(0)
    await lab.settled(3)
    await until(lambda: says_it(lab) == [False] * 3, "the next start says it no more")
    assert await offline("AGAIN")
    assert (await api(client, "STREAM.INFO.NEW"))["state"]["messages"] == COUNT


async def until_whole(lab: Lab, count: int) -> None:
    """Start an old copy with a node that is behind, and behind them the one that has everything."""
    lab.start(0)
    lab.start(1)
    await until(lambda: says_it(lab) == [True, False], "the node says so")
    groups = lab.cluster(0).group.driver.multi_raft.groups
    assert all(raft.recovering for raft in groups.values()), "it votes by what the copy has"
    lab.start(2)
    await lab.settled(3)
    client = await lab.connect(1)

    async def whole() -> bool:
        info = await api(client, "STREAM.INFO.S")
        return info.get("state", {}).get("messages") == count

    await until(whole, "everything acknowledged is there")


async def test_an_old_copy_and_a_node_that_is_behind_lead_nothing(tmp_path: Path, lab: Lab) -> None:
    """What was acknowledged is on the third node, which is away."""
    await lab.formed()
    client = await lab.connect(2)
    await make(client, "S", num_replicas=3)
    await fill(client, "S")
    copies = Copies(lab, tmp_path)
    await copies.keep(0)
    await lab.stop_node(1)
    await fill(client, "S")
    await lab.stop_node(0)
    await lab.stop_node(2)
    copies.put_back(0)
    await until_whole(lab, 2 * COUNT)


def lay_over(old: Path, folder: Path) -> None:
    """Put a copy in the place of a folder as `rsync -a --delete` does: a file that has not changed
    is not touched, so the folder passes for the one in which the node ran."""
    for each in sorted(folder.rglob("*"), reverse=True):
        there = old / each.relative_to(folder)
        if each.is_file() and not there.exists():
            each.unlink()
    for each in sorted(old.rglob("*")):
        here = folder / each.relative_to(old)
        if each.is_dir():
            here.mkdir(exist_ok=True)
        elif not here.exists() or here.read_bytes() != each.read_bytes():
            shutil.copy2(each, here)


async def known_beyond(lab: Lab, by: int, node: int) -> None:
    """Wait until a node has heard that another one's log has more than now."""
    cluster = lab.cluster(node)
    now = cluster.group.driver.store.log.durable_lsn
    reached = lab.cluster(by).founding.starts.reached
    await until(lambda: reached.get(cluster.number, 0) > now, "it is heard of")


async def test_a_copy_of_the_last_start_is_found(tmp_path: Path, lab: Lab) -> None:
    await lab.formed()
    client = await lab.connect(2)
    here: dict[str, Any] = {"placement": {"tags": ["az:0"]}}
    await make(client, "OLD", **here)
    await fill(client, "OLD")
    shutil.copytree(tmp_path / "n0", tmp_path / "old0")
    heard = asyncio.ensure_future(known_beyond(lab, 1, 0))
    await asyncio.sleep(0)
    await make(client, "NEW", **here)
    await fill(client, "OLD", "NEW")
    await heard
    await lab.stop_node(0)
    for index in (1, 2):
        await lab.stop_node(index)
        lab.start(index)
    await until(lambda: lab.leader() is not None, "the others lead")
    Copies(lab, tmp_path).put_back(0)
    lab.start(0)
    await lab.settled(3)
    await until(lambda: says_it(lab) == [True, False, False], "the node says so")
    client = await lab.connect(1)

    lost = lab.cluster(1).state.stream
    await until(lambda: (known := lost("$G", "NEW")) is not None and known.assignment.lost)

    async def offline() -> bool:
        error = (await api(client, "STREAM.INFO.NEW")).get("error", {})
        return error.get("err_code") == 10194 and PUT_BACK_STREAM in error["description"]

    await until(offline, "NEW is offline")
    others = [lab.cluster(index).jetstream.cluster_view.health() for index in (1, 2)]
    assert others == [[], []], "nodes that never had it are not ill"
    assert (await api(client, "STREAM.INFO.OLD"))["state"]["messages"] == COUNT


async def test_a_copy_laid_over_the_folder_does_not_vote_by_what_it_knew(
    tmp_path: Path, lab: Lab
) -> None:
    """It passes for the folder of a node that was only killed. What was acknowledged since is on
    the third node, which is away."""
    await lab.formed()
    client = await lab.connect(2)
    await make(client, "S", num_replicas=3)
    await fill(client, "S")
    shutil.copytree(tmp_path / "n0", tmp_path / "old0")
    heard = asyncio.ensure_future(known_beyond(lab, 1, 0))
    await asyncio.sleep(0)
    await fill(client, "S")
    await heard
    await lab.stop_node(1)
    await fill(client, "S")
    await lab.stop_node(0)
    await lab.stop_node(2)
    lay_over(tmp_path / "old0", tmp_path / "n0")
    await until_whole(lab, 3 * COUNT)


async def test_replicas_of_streams_that_the_cluster_forgot_are_kept_and_named(
    tmp_path: Path, lab: Lab
) -> None:
    """Two old copies lead, and use a group's number again that the third node has, too. That one
    knows more of the cluster, and leads when it is back."""
    await lab.formed()
    client = await lab.connect(2)
    copies = Copies(lab, tmp_path)
    await copies.keep(0, 1)
    for _ in range(3):
        leader = lab.leader()
        assert leader is not None
        lab.cluster(leader).group.step_down(0)
        await until(lambda leader=leader: lab.leader() not in (None, leader), "another one leads")
    for number in range(5):
        await make(client, f"MORE{number}", placement={"tags": ["az:2"]})
    await make(client, "LATE", num_replicas=3)
    await fill(client, "LATE")
    await copies.lead(0, 1)
    client = await lab.connect(0)
    await make(client, "OTHER", num_replicas=2)
    await fill(client, "OTHER")
    lab.start(2)
    await lab.settled(3)
    await until(lambda: lab.cluster(0).state.stream("$G", "LATE") is not None, "it is known")
    for index in (0, 1):
        view = lab.cluster(index).jetstream.cluster_view
        await until(lambda view=view: OTHER_STREAM in str(view.health()), "it names the cause")
        assert f"stream '$G > OTHER' {STRANGER}" in view.health()
        replicas = lab.cluster(index).group.driver.store.replicas
        kept = lab.cluster(2).state.stream("$G", "LATE")
        assert kept is not None
        store = replicas[kept.assignment.group].store
        assert store is not None and store.messages == COUNT
