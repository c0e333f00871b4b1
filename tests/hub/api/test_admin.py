"""Orders of operators: another leader, a node less."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import nats
from click.testing import CliRunner

from headwater.deploy.cli import cli
from headwater.edge.conf.options import AccountJetStreamOptions, AccountOptions
from headwater.security.auth_options import AuthOptions, UserOptions
from tests.hub.lab import Lab, api
from tests.waiting import until


def with_system_user(path: Path, limits: AccountJetStreamOptions | None = None) -> Lab:
    """A cluster with a user of the system account; `limits` are those of account A."""
    limits = limits or AccountJetStreamOptions()
    users = [UserOptions(user=name, password=name, account=name) for name in ("A", "$SYS")]
    accounts = {
        "A": AccountOptions(name="A", users=users[:1], jetstream=limits),
        "$SYS": AccountOptions(name="$SYS", users=users[1:]),
    }
    return Lab(path, accounts=accounts, auth=AuthOptions(users=users))


async def order(lab: Lab, index: int, name: str, **body: Any) -> Any:
    """One request in the system account."""
    client = await lab.connect(index, user="$SYS", password="$SYS")
    return await api(client, name, **body)


async def test_another_node_leads_on_demand(tmp_path: Path) -> None:
    lab = with_system_user(tmp_path)
    try:
        await lab.formed()
        before = lab.leader()
        assert before is not None
        target = (before + 1) % 3
        placed = {"placement": {"preferred": f"n{target}"}}
        assert (await order(lab, target, "META.LEADER.STEPDOWN", **placed))["success"]
        await until(lambda: lab.leader() == target)
        refused = await order(lab, before, "META.LEADER.STEPDOWN", **placed)
        assert refused["error"]["err_code"] == 10005
        client = await lab.connect(before, user="A", password="A")
        made = await asyncio.gather(
            *(api(client, f"STREAM.CREATE.S{i}", name=f"S{i}", subjects=[f"{i}"]) for i in range(9))
        )
        assert all(answer["did_create"] for answer in made)
    finally:
        await lab.stop()


async def test_requests_that_come_together_share_the_limits(tmp_path: Path) -> None:
    """Each is judged as if those before it were committed already."""
    lab = with_system_user(tmp_path, AccountJetStreamOptions(max_store=1 << 20, max_streams=5))
    try:
        await lab.formed()
        clients = [await lab.connect(index, user="A", password="A") for index in range(3)]

        async def at_once(kind: str, **body: Any) -> list[int]:
            """Codes of the answers, 0 where it is done."""
            names = [f"{kind}{number}" for number in range(8)]
            answers = await asyncio.gather(
                *(
                    api(clients[number % 3], f"STREAM.CREATE.{name}", name=name, **body)
                    for number, name in enumerate(names)
                )
            )
            await asyncio.gather(*(api(clients[0], f"STREAM.DELETE.{name}") for name in names))
            return sorted(each.get("error", {}).get("err_code", 0) for each in answers)

        assert await at_once("COUNT") == [0] * 5 + [10027] * 3
        assert await at_once("BYTES", num_replicas=3, max_bytes=100 << 10) == [0] * 3 + [10047] * 5
    finally:
        await lab.stop()


async def test_a_drained_node_leads_nothing_until_it_may_again(tmp_path: Path) -> None:
    lab = with_system_user(tmp_path)
    try:
        await lab.formed()
        busy = lab.leader()
        assert busy is not None
        client = await lab.connect((busy + 1) % 3, user="A", password="A")
        for number in range(4):
            fields = {"name": f"S{number}", "subjects": [f"{number}"], "num_replicas": 3}
            assert "error" not in await api(client, f"STREAM.CREATE.S{number}", **fields)
        node = lab.nodes[(busy + 1) % 3]
        assert node is not None
        url = node.ports()["nats"][0]
        command = ["hub", "drain", "--server", url, "--user", "$SYS", "--password", "$SYS"]
        result = await asyncio.to_thread(CliRunner().invoke, cli, [*command, f"n{busy}"])
        assert result.output == f"n{busy} leads nothing: it can be stopped\n"
        assert not lab.cluster(busy).jetstream.accounts["A"].streams
        assert not lab.cluster(busy).group.leads
        told = await asyncio.to_thread(CliRunner().invoke, cli, [*command, "--json", f"n{busy}"])
        assert json.loads(told.output) == {"node": f"n{busy}", "leads": 0, "drained": True}
        placed = {"placement": {"preferred": f"n{busy}"}}
        await until(lambda: lab.leader() not in (busy, None))
        refused = await order(lab, busy, "META.LEADER.STEPDOWN", **placed)
        assert refused["error"]["err_code"] == 10005
        result = await asyncio.to_thread(CliRunner().invoke, cli, [*command, "--undo", f"n{busy}"])
        assert result.output == f"n{busy} may lead again\n"
        assert (await order(lab, busy, "META.LEADER.STEPDOWN", **placed))["success"]
        await until(lambda: lab.leader() == busy)
        result = await asyncio.to_thread(CliRunner().invoke, cli, [*command, "nobody"])
        assert result.exit_code == 1
        assert "not a member" in result.output
        command = ["hub", "drain", "--server", url, "--user", "A", "--password", "A", f"n{busy}"]
        result = await asyncio.to_thread(CliRunner().invoke, cli, command)
        assert result.exit_code == 1
        assert "log in as one of the system account" in result.output
    finally:
        await lab.stop()


async def test_a_node_that_is_gone_is_removed_and_may_come_back(tmp_path: Path) -> None:
    lab = with_system_user(tmp_path)
    try:
        await lab.formed()
        await lab.stop_node(2)
        await until(lambda: lab.leader() is not None)
        here = lab.leader() or 0
        assert (await order(lab, here, "SERVER.REMOVE", peer="n2"))["success"]
        await until(lambda: all(len(c.group.members) == 2 for c in lab.clusters()))
        again = await order(lab, here, "SERVER.REMOVE", peer="n2")
        assert again["error"]["err_code"] == 10044
        lab.start(2)
        await lab.settled(3)
        client = await lab.connect(2, user="A", password="A")
        placed = {"tags": ["az:2"]}
        made = await api(client, "STREAM.CREATE.S", name="S", subjects=["s"], placement=placed)
        assert made["cluster"]["leader"] == "n2"
    finally:
        await lab.stop()


async def test_orders_to_a_meta_leader_that_has_just_begun_are_answered(tmp_path: Path) -> None:
    lab = with_system_user(tmp_path)
    try:
        await lab.formed()
        client = await lab.connect(0, user="$SYS", password="$SYS")
        changed = asyncio.Event()
        for cluster in lab.clusters():
            cluster.group.watchers.append(changed.set)
        before = 0
        for _ in range(20):
            # All agree, and the new leader may not have applied what its term began with.
            while len(leaders := {c.group.leader for c in lab.clusters()}) > 1 or before in leaders:
                changed.clear()
                await changed.wait()
            before = leaders.pop()
            assert (await api(client, "META.LEADER.STEPDOWN", 4))["success"]
    finally:
        await lab.stop()


async def test_a_node_is_evacuated_and_stays_a_member(tmp_path: Path) -> None:
    lab = with_system_user(tmp_path)
    try:
        await lab.formed()
        client = await lab.connect(0, user="A", password="A")
        tied = {"placement": {"tags": ["az:2"]}}
        await api(client, "STREAM.CREATE.R", name="R", subjects=["r"], num_replicas=3)
        for name in ("FREE", "TIED"):
            made = await api(client, f"STREAM.CREATE.{name}", name=name, subjects=[name], **tied)
            assert made["cluster"]["leader"] == "n2"
            await client.jetstream().publish(name, b"kept")
        await api(client, "STREAM.UPDATE.FREE", name="FREE", subjects=["FREE"])
        assert (await order(lab, 0, "SERVER.EVACUATE", peer="n2"))["success"]

        async def leader(name: str) -> tuple[str, int, int]:
            """Who leads a stream, its replicas besides, and its messages."""
            try:
                found = await api(client, f"STREAM.INFO.{name}", 1)
            except nats.errors.TimeoutError:
                # The node that gave the stream up has heard of it before the one that took it.
                return "", 0, 0
            place = found["cluster"]
            if "desired" in place:
                return "", 0, 0
            return place["leader"], len(place.get("replicas", [])), found["state"]["messages"]

        async def left() -> bool:
            name, others, messages = await leader("FREE")
            return name in ("n0", "n1") and (others, messages) == (0, 1)

        await until(left, "FREE has left")

        async def fewer() -> bool:
            name, others, _ = await leader("R")
            return name in ("n0", "n1") and others == 1

        await until(fewer, "R has one replica less")
        assert await leader("TIED") == ("n2", 0, 1)
        assert len(lab.cluster(0).group.members) == 3
    finally:
        await lab.stop()


async def test_all_streams_of_an_account_are_deleted(tmp_path: Path) -> None:
    lab = with_system_user(tmp_path)
    try:
        await lab.formed()
        client = await lab.connect(1, user="A", password="A")
        for replicas in (1, 3):
            fields = {"name": f"S{replicas}", "num_replicas": replicas}
            assert "error" not in await api(client, f"STREAM.CREATE.S{replicas}", **fields)
        for index in range(3):
            assert (await order(lab, index, "ACCOUNT.PURGE.A"))["initiated"]
        assert (await api(client, "STREAM.NAMES"))["total"] == 0
        for cluster in lab.clusters():
            await until(lambda c=cluster: len(c.jetstream.store().stores()) == 1)
    finally:
        await lab.stop()


async def test_a_farewell_hands_the_leadership_over(lab: Lab) -> None:
    await lab.formed()
    before = lab.leader()
    assert before is not None
    node = lab.nodes[before]
    assert node is not None
    for farewell in node.farewells:
        farewell()
    await until(lambda: lab.leader() not in (None, before))
    client = await lab.connect(0)
    for i in range(6):
        made = await api(client, f"STREAM.CREATE.S{i}", name=f"S{i}", subjects=[f"s{i}"])
        assert made["cluster"]["leader"] != f"n{before}"


async def test_a_node_that_joins_gets_the_replicas_that_are_missing(tmp_path: Path) -> None:
    lab = with_system_user(tmp_path)
    try:
        await lab.formed()
        client = await lab.connect(0, user="A", password="A")
        for name, more in (("S", {}), ("T", {"placement": {"tags": ["all"]}})):
            made = await api(
                client, f"STREAM.CREATE.{name}", name=name, subjects=[name], num_replicas=3, **more
            )
            assert made["did_create"]
        for _ in range(50):
            await client.publish("S", b"before")
        await client.flush()
        await lab.stop_node(2)
        await until(lambda: lab.leader() is not None)
        here = lab.leader() or 0
        assert (await order(lab, here, "SERVER.REMOVE", peer="n2"))["success"]

        def replicas(name: str) -> list[int]:
            known = lab.cluster(here).state.stream("A", name)
            assert known is not None
            return [] if known.assignment.change is not None else known.assignment.peers

        await until(lambda: len(replicas("S")) == len(replicas("T")) == 2)
        shutil.rmtree(tmp_path / "n2")
        lab.start(2)
        await lab.settled(3)
        await until(lambda: len(replicas("S")) == len(replicas("T")) == 3)
        found = await api(client, "STREAM.INFO.S")
        assert len(found["cluster"]["replicas"]) == 2 and found["state"]["messages"] == 50
        evacuated = await order(lab, here, "SERVER.EVACUATE", peer="n2")
        assert evacuated["success"]
        await until(lambda: len(replicas("S")) == len(replicas("T")) == 2)
        leader = lab.leader()
        assert leader is not None
        await lab.service(leader).completing.complete()
        assert len(replicas("S")) == len(replicas("T")) == 2, "it was to have nothing"
    finally:
        await lab.stop()
