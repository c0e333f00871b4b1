"""JetStream of one account is taken away from nodes of a cluster by reloads, and given back."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.errors import NoRespondersError

from headwater.hub.meta.assignment import META_GROUP
from tests.hub.api.beside import Nodes, at_both, led, our_nodes, their_nodes
from tests.hub.lab import api
from tests.waiting import connected, until

REPLICAS = {"S": 3, "ONE": 1}
ASKED = ("{0}", "$JS.API.DIRECT.GET.{0}.{0}", "$JS.API.CONSUMER.MSG.NEXT.{0}.C")
SIZE = 3


def without(text: str) -> str:
    """A configuration in which the account A has no JetStream."""
    return text.replace("A { jetstream: enabled,", "A { ")


def given_back(text: str) -> str:
    """One in which it has."""
    return text.replace("A { ", "A { jetstream: enabled,")


async def made(user: Client) -> None:
    """Streams of two messages, of which one is acknowledged."""
    await until(lambda: led(user), "there is a leader")
    explicit = {"ack_policy": "explicit", "durable_name": "C"}
    for name, replicas in REPLICAS.items():
        config = {"subjects": [name], "num_replicas": replicas, "allow_direct": True}
        found = await api(user, f"STREAM.CREATE.{name}", name=name, **config)
        assert "error" not in found, found
        await api(user, f"CONSUMER.CREATE.{name}.C", stream_name=name, config=explicit)
        for number in range(2):
            await user.request(name, b"%d" % number, timeout=5)
        await until(lambda name=name: first_acknowledged(user, name), "a message is acknowledged")


async def first_acknowledged(user: Client, name: str) -> bool:
    """Whether a message came, and was acknowledged: nats-server loses requests of a consumer that
    has no leader yet."""
    inbox = await user.subscribe(user.new_inbox())
    await user.publish(ASKED[2].format(name), b"1", inbox.subject)
    with contextlib.suppress(TimeoutError):
        pulled = await inbox.next_msg(1)
        if pulled.reply:
            await user.request(pulled.reply, b"+ACK", timeout=5)
            return True
    await inbox.unsubscribe()
    return False


async def unserved(user: Client) -> dict[str, Any]:
    """What the API says while nobody serves the account, and what has no responders."""
    found: dict[str, Any] = {}
    for name in REPLICAS:
        asked = f"STREAM.INFO.{name}"
        found[asked] = (await api(user, asked))["error"]["err_code"]
        for subject in (each.format(name) for each in ASKED):
            try:
                await user.request(subject, b"", timeout=5)
            except NoRespondersError:
                found[subject] = "no responders"
    return found


async def taken_away(nodes: Nodes, user: Client) -> dict[str, Any]:
    """Nodes without JetStream of the account, and what is found then."""
    await made(user)
    for index in range(SIZE):
        await nodes.reload(index, without)
    await until(lambda: nobody(user), "nobody takes publishes")
    return await unserved(user)


async def nobody(user: Client) -> bool:
    """Whether the API refuses the account, and nobody takes what is published on the streams."""
    if "error" not in await api(user, "INFO"):
        return False
    return not any([await answered(user, name) for name in REPLICAS])


async def answered(user: Client, name: str) -> bool:
    """Whether anybody answers to a publish, which is none of any stream."""
    with contextlib.suppress(NoRespondersError):
        refused = {"Nats-Expected-Stream": "none"}
        await user.request(name, b"", headers=refused, timeout=5)
        return True
    return False


async def of_theirs(path: Path) -> dict[str, Any]:
    """What three nats-servers say."""
    async with their_nodes(path, SIZE) as nodes:
        user = await connected(f"nats://a:a@127.0.0.1:{nodes.port}")
        try:
            return await taken_away(nodes, user)
        finally:
            await user.close()


async def of_ours(path: Path) -> tuple[dict[str, Any], list[Any], list[int]]:
    """What ours say, what is there when the account has JetStream again, and the sequences of
    publishes while one node after the other has it no more."""
    async with our_nodes(path, SIZE) as nodes:
        user = await connected(f"nats://a:a@127.0.0.1:{nodes.port}")
        try:
            found = await taken_away(nodes, user)
            for index in range(SIZE):
                await nodes.reload(index, given_back)
            await until(lambda: led(user), "there is JetStream again")
            back: list[Any] = []
            for name in REPLICAS:
                answer = await user.request(ASKED[1].format(name), b"", timeout=5)
                consumer = await api(user, f"CONSUMER.INFO.{name}.C")
                back.append((answer.data, consumer["ack_floor"]["stream_seq"]))
            return found, back, await one_by_one(nodes, user)
        finally:
            await user.close()


async def served(user: Client) -> bool:
    """Whether the stream S answers; a node that is about to lead it may keep one waiting."""
    with contextlib.suppress(TimeoutError):
        return await answered(user, "S")
    return False


async def one_by_one(nodes: Nodes, user: Client) -> list[int]:
    """Sequences of publishes when the leader's node has no JetStream of the account, then another
    one; and when none had it, and one that did not lead has it again."""
    first = int((await api(user, "STREAM.INFO.S"))["cluster"]["leader"][1:])
    second, last = (each for each in range(SIZE) if each != first)
    found = [await published(user)]
    for index in (first, second):
        await nodes.reload(index, without)
        found.append(await published(user))
    await nodes.reload(last, without)
    await until(lambda: nobody(user), "nobody takes publishes")
    await until(lambda: asleep(nodes), "groups of which nobody serves the stream sleep")
    await nodes.reload(second, given_back)
    await until(lambda: served(user), "a node serves the stream", 10)
    return [*found, await published(user)]


def asleep(nodes: Nodes) -> bool:
    """Whether no node counts time for the stream S."""
    assert nodes.lab is not None
    found = [
        raft.sleep.asleep
        for cluster in nodes.lab.clusters()
        for number, raft in cluster.group.driver.multi_raft.groups.items()
        if number != META_GROUP
    ]
    return len(found) == SIZE and all(found)


async def published(user: Client) -> int:
    """The sequence of one more message."""
    return int(json.loads((await user.request("S", b"x", timeout=5)).data)["seq"])


async def test_streams_rest_while_their_account_has_no_jetstream(tmp_path: Path) -> None:
    """Nobody answers for them meanwhile. nats-servers serve those with replicas only after their
    next start; ours do at once, with what was acknowledged, and as long as one node has it."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        theirs = group.create_task(of_theirs(tmp_path / "theirs"))
        ours = group.create_task(of_ours(tmp_path / "ours"))
    found, back, sequences = ours.result()
    assert found == theirs.result()
    assert len(found) == len(REPLICAS) * (1 + len(ASKED))
    assert back == [(b"1", 1)] * len(REPLICAS)
    assert sequences == [3, 4, 5, 6]


async def led_by(system: Client, name: str) -> bool:
    """Whether a node leads the cluster; it is asked to if not."""
    with contextlib.suppress(TimeoutError, NoRespondersError):
        answer = await system.request("$SYS.REQ.SERVER.PING.JSZ", b"", timeout=2)
        if json.loads(answer.data)["data"].get("meta_cluster", {}).get("leader") == name:
            return True
        body = json.dumps({"placement": {"preferred": name}}).encode()
        await system.request("$JS.API.META.LEADER.STEPDOWN", body, timeout=2)
    return False


async def asked_where_it_is_not(nodes: Nodes) -> list[Any]:
    """What a client of a node hears on which its account has no JetStream, while another node
    leads the cluster, and while that one does."""
    user = await connected(f"nats://a:a@127.0.0.1:{nodes.port}")
    system = await connected(f"nats://sys:sys@127.0.0.1:{nodes.port}")
    found: list[Any] = []
    try:
        await until(lambda: led(user), "there is a leader")
        await nodes.reload(0, without)
        for leader in ("n1", "n0"):
            await until(lambda leader=leader: led_by(system, leader), f"{leader} leads")
            await until(lambda: heard(user), "there is an answer")
            info = await api(user, "INFO")
            found.append(info.get("error", {}).get("err_code") or info["streams"])
        return found
    finally:
        await user.close()
        await system.close()


async def heard(user: Client) -> bool:
    """Whether the API answers at all, and not for want of a leader."""
    with contextlib.suppress(TimeoutError, NoRespondersError):
        answer = json.loads((await user.request("$JS.API.INFO", b"", timeout=1)).data)
        return bool(answer.get("error", {}).get("err_code") != 10008)
    return False


async def test_who_leads_the_cluster_says_that_an_account_has_none(tmp_path: Path) -> None:
    """Clients of a node without are served by the others."""
    theirs, ours = await at_both(tmp_path, asked_where_it_is_not)
    assert ours == theirs == [0, 10039]


async def test_streams_go_where_their_account_has_jetstream(tmp_path: Path) -> None:
    async with our_nodes(tmp_path / "ours", SIZE) as nodes:
        user = await connected(f"nats://a:a@127.0.0.1:{nodes.port}")
        assert nodes.lab is not None
        await until(lambda: led(user), "there is a leader")
        leader = nodes.lab.leader()
        assert leader is not None
        without_it = (leader + 1) % SIZE
        await nodes.reload(without_it, without)
        for number in range(2 * SIZE):
            name = f"S{number}"
            made = await api(user, f"STREAM.CREATE.{name}", name=name, subjects=[name])
            assert made["cluster"]["leader"] != f"n{without_it}"
        await user.close()
