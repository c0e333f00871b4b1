"""Replicas in /jsz of nodes that lead and of nodes that follow, beside three nats-servers."""

import asyncio
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.js.errors import NoStreamResponseError

from tests.hub.api.beside import Nodes, at_both, led
from tests.hub.api.test_health_differential import get
from tests.hub.lab import api
from tests.waiting import connected, until

PAGE = "jsz?acc=A&streams=1&consumers=1&config=1"


def row(name: str, detail: dict[str, Any]) -> dict[str, Any]:
    """What a node shows of a stream: who leads, what it has, and its consumers."""
    leader = detail["cluster"].get("leader", "")
    consumers = {
        one["name"]: (one["delivered"]["stream_seq"], one["ack_floor"]["stream_seq"])
        for one in detail.get("consumer_detail", [])
    }
    peers = {each["name"] for each in detail["cluster"].get("replicas", [])}
    return {
        "led": bool(leader),
        "leads": leader == name,
        "leader_among_peers": leader in peers,
        "itself_among_peers": name in peers,
        "peers": len(peers),
        "state": [detail["state"][key] for key in ("messages", "bytes", "first_seq", "last_seq")],
        "counted": detail["state"]["consumer_count"],
        "consumers": consumers,
        "replicas": detail["config"]["num_replicas"],
    }


async def shown(monitors: list[int], page: str = PAGE) -> list[dict[str, Any]]:
    """What all nodes show, the leader of each stream first."""
    found = []
    for index, monitor in enumerate(monitors):
        _, answer = await asyncio.to_thread(get, monitor, page)
        found += [
            {"stream": each["name"], **row(f"n{index}", each)}
            for account in answer["account_details"]
            for each in account.get("stream_detail", [])
        ]
    return sorted(found, key=lambda each: (each["stream"], not each["leads"]))


async def totals(monitors: list[int]) -> dict[str, int]:
    """What all nodes count, added up."""
    pages = [(await asyncio.to_thread(get, monitor, "jsz"))[1] for monitor in monitors]
    kinds = ("streams", "consumers", "messages", "bytes")
    return {kind: sum(page[kind] for page in pages) for kind in kinds}


async def published(user: Client, name: str) -> bool:
    """Publish a message; False where nats-server's nodes do not know the new stream yet."""
    try:
        return bool(await user.jetstream().publish(name, b"x"))
    except NoStreamResponseError:
        return False


async def filled(address: str) -> None:
    """Streams of three replicas and of one, a consumer of each kind, and a message worked on."""
    user = await connected(f"nats://a:a@{address}")
    try:
        await until(lambda: led(user), "there is a leader")
        for name, replicas in (("S", 3), ("ONE", 1)):
            made = await api(
                user, f"STREAM.CREATE.{name}", name=name, subjects=[name], num_replicas=replicas
            )
            assert "error" not in made, made
            for _ in range(5):
                await until(lambda name=name: published(user, name), "the stream listens")
        for name, replicas in (("c", 3), ("alone", 1)):
            config = {"durable_name": name, "ack_policy": "explicit", "num_replicas": replicas}
            made = await api(user, f"CONSUMER.CREATE.S.{name}", stream_name="S", config=config)
            assert "error" not in made, made
        work = await user.jetstream().pull_subscribe_bind("c", "S")
        for message in await work.fetch(3):
            await message.ack_sync()
    finally:
        await user.close()


async def test_every_node_shows_its_replicas(tmp_path: Path) -> None:
    async def told(nodes: Nodes) -> tuple[Any, ...]:
        ports = nodes.monitors
        await filled(f"127.0.0.1:{nodes.port}")
        found: list[Any] = []

        async def all_there() -> bool:
            rows = await shown(ports)
            of_three = [each for each in rows if each["stream"] == "S"]
            # nats-server has an R1 consumer on one node of the three, any of them.
            seen = {str((each["state"], each["consumers"].get("c"))) for each in of_three}
            found[:] = [rows, await shown(ports, f"{PAGE}&stream-leader-only=1")]
            led_here = [each["stream"] for each in found[1]]
            whole = len(of_three) == 3 and len(seen) == 1 and led_here == ["ONE", "S"]
            return whole and all(each["led"] for each in rows)

        await until(all_there, "all nodes have everything")
        for each in found[0]:
            each["consumers"].pop("alone", None)
            each.pop("counted")
        led_here = [each["stream"] for each in found[1]]
        return found[0], led_here, await totals(ports)

    theirs, ours = await at_both(tmp_path, told, monitoring=True)
    assert ours == theirs


async def test_every_node_shows_the_consumers_of_its_replica_in_memory(tmp_path: Path) -> None:
    async def told(nodes: Nodes) -> list[dict[str, Any]]:
        user = await connected(f"nats://a:a@127.0.0.1:{nodes.port}")
        try:
            await until(lambda: led(user), "there is a leader")
            config = {"name": "M", "subjects": ["M"], "num_replicas": 3, "storage": "memory"}
            made = await api(user, "STREAM.CREATE.M", **config)
            assert "error" not in made, made
            consumer = {"durable_name": "c", "ack_policy": "explicit"}
            made = await api(user, "CONSUMER.CREATE.M.c", stream_name="M", config=consumer)
            assert "error" not in made, made
            for _ in range(5):
                await until(lambda: published(user, "M"), "the stream listens")
            work = await user.jetstream().pull_subscribe_bind("c", "M")
            for message in await work.fetch(3):
                await message.ack_sync()
        finally:
            await user.close()
        found: list[dict[str, Any]] = []

        async def all_there() -> bool:
            found[:] = await shown(nodes.monitors)
            return len(found) == 3 and all(each["consumers"].get("c") == (3, 3) for each in found)

        await until(all_there, "all nodes have the consumer")
        return [{key: each[key] for key in ("leads", "consumers", "counted")} for each in found]

    theirs, ours = await at_both(tmp_path, told, monitoring=True)
    assert ours == theirs
