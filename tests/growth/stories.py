"""What clients do and undo. Each story is told again and again, with other names each time."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig

from tests.waiting import until

Story = Callable[["World", int], Awaitable[None]]


class World:
    """One server, or three, and clients of two accounts; `ports` by kind of listener."""

    def __init__(self, client: Client, ports: dict[str, int], replicas: int = 1) -> None:
        self.client = client
        self.js: JetStreamContext = client.jetstream(timeout=20)
        self.ports = ports
        self.replicas = replicas
        self.kept: dict[str, Any] = {}
        """What a story made when it was told first."""

    async def api(self, request: str, **body: Any) -> dict[str, Any]:
        """One request of the API; an error is one of the test."""
        payload = json.dumps(body).encode() if body else b""
        answer = await self.client.request(f"$JS.API.{request}", payload, timeout=20)
        found: dict[str, Any] = json.loads(answer.data)
        assert "error" not in found, found
        return found

    async def stream(self, name: str, **fields: Any) -> None:
        """Make a stream, unless it was."""
        if name not in self.kept:
            fields = {"subjects": [f"{name}.>"], "num_replicas": self.replicas, **fields}
            self.kept[name] = await self.api(f"STREAM.CREATE.{name}", name=name, **fields)

    async def filled(self, name: str) -> None:
        """A stream with ten messages."""
        if name not in self.kept:
            await self.stream(name)
            for number in range(10):
                await self.js.publish(f"{name}.{number}", b"x")

    async def lines(self, port: int, *sent: bytes) -> bytes:
        """Say some lines to a listener and leave; what it answered up to a PONG or the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answer = await reader.readline()
        writer.write(b"".join(sent))
        while line := await reader.readline():
            answer += line
            if line.startswith((b"PONG", b"-ERR")):
                break
        writer.close()
        await writer.wait_closed()
        return answer


async def connections(world: World, number: int) -> None:
    client = await nats.connect(f"nats://127.0.0.1:{world.ports['nats']}", name=f"c{number}")
    await client.close()


async def refused_logins(world: World, number: int) -> None:
    said = b'CONNECT {"user":"u%d","pass":"x"}\r\nPING\r\n' % number
    assert b"Authorization" in await world.lines(world.ports["nats"], said)


async def websockets(world: World, number: int) -> None:
    client = await nats.connect(f"ws://127.0.0.1:{world.ports['websocket']}", name=f"w{number}")
    await client.close()


async def subscriptions(world: World, number: int) -> None:
    plain = await world.client.subscribe(f"s.{number}.*")
    shared = await world.client.subscribe(f"s.{number}.>", queue=f"q{number}")
    await world.client.publish(f"s.{number}.a")
    await plain.next_msg(10)
    await shared.next_msg(10)
    await plain.unsubscribe()
    await shared.unsubscribe()


async def subscriptions_with_an_end(world: World, number: int) -> None:
    found = await world.client.subscribe(f"e.{number}")
    await found.unsubscribe(limit=1)
    await world.client.publish(f"e.{number}")
    await world.client.flush()


async def requests_for_nobody(world: World, number: int) -> None:
    try:
        await world.client.request(f"nobody.{number}", timeout=10)
    except nats.errors.NoRespondersError:
        return
    raise AssertionError("somebody answered")


async def services(world: World, number: int) -> None:
    """Requests of another account; every second has no answer."""
    if "other" not in world.kept:

        async def answer(message: Any) -> None:
            if message.data == b"0":
                await message.respond(b"")

        url = f"nats://127.0.0.1:{world.ports['nats']}"
        world.kept["other"] = await nats.connect(url, user="b", password="b")
        await world.client.subscribe("svc.>", cb=answer)
        await world.client.flush()
    other = world.kept["other"]
    if number % 2:
        await other.publish(f"svc.{number}", b"1", reply=f"answers.{number}")
    else:
        await other.request(f"svc.{number}", b"0", timeout=10)


async def traces(world: World, number: int) -> None:
    events = await world.client.subscribe(f"t.{number}")
    headers = {"Nats-Trace-Dest": f"t.{number}", "Nats-Trace-Only": "true"}
    await world.client.publish("traced", b"", headers=headers)
    await events.next_msg(10)
    await events.unsubscribe()


async def streams(world: World, number: int) -> None:
    for name, storage in ((f"F{number}", "file"), (f"M{number}", "memory")):
        fields = {"subjects": [f"{name}.>"], "storage": storage, "num_replicas": world.replicas}
        await world.api(f"STREAM.CREATE.{name}", name=name, **fields)
        await world.js.publish(f"{name}.a", b"x")
        await world.api(f"STREAM.DELETE.{name}")


async def streams_that_get_replicas(world: World, number: int) -> None:
    """What a stream has is sent to its new members."""
    fields = {"name": f"S{number}", "subjects": [f"S{number}.>"]}
    await world.api(f"STREAM.CREATE.S{number}", **fields)
    await world.js.publish(f"S{number}.a", b"x")
    await world.api(f"STREAM.UPDATE.S{number}", **fields, num_replicas=world.replicas)

    async def whole() -> bool:
        cluster = (await world.api(f"STREAM.INFO.S{number}"))["cluster"]
        current = [one for one in cluster.get("replicas", ()) if one["current"]]
        return len(current) == world.replicas - 1

    await until(whole, "all replicas are current")
    await world.api(f"STREAM.DELETE.S{number}")


async def changed_streams(world: World, number: int) -> None:
    await world.stream("U")
    fields = {"num_replicas": world.replicas, "description": str(number)}
    await world.api("STREAM.UPDATE.U", name="U", subjects=[f"u.{number}.>"], **fields)
    await world.js.publish(f"u.{number}.a", b"x")
    await world.api("STREAM.PURGE.U")


async def streams_at_a_limit(world: World, number: int) -> None:
    await world.stream("L", max_msgs=5, duplicate_window=100_000_000)
    if number % 8 == 0:
        await asyncio.sleep(0.15)  # what came before is not remembered any more
    await world.js.publish(f"L.{number}", b"x", headers={"Nats-Msg-Id": f"id{number}"})


async def short_lived_messages(world: World, number: int) -> None:
    await world.stream("T", allow_msg_ttl=True, max_msgs=5)
    await world.js.publish(f"T.{number}", b"x", headers={"Nats-TTL": "1s"})


async def deleted_messages(world: World, number: int) -> None:
    await world.stream("D")
    kept = await world.js.publish(f"D.{number}", b"x")
    await world.api("STREAM.MSG.DELETE.D", seq=kept.seq)


async def batches(world: World, number: int) -> None:
    """One that is committed, and one that is left and given up by the next."""
    await world.stream("A", allow_atomic=True, max_msgs=5)
    for sequence in (1, 2):
        headers = {"Nats-Batch-Id": f"b{number}", "Nats-Batch-Sequence": str(sequence)}
        if sequence == 2:
            headers["Nats-Batch-Commit"] = "1"
        await world.client.request("A.x", b"x", headers=headers, timeout=10)


async def work(world: World, number: int) -> None:
    await world.stream("W", retention="workqueue")
    if "worker" not in world.kept:
        world.kept["worker"] = await world.js.pull_subscribe("W.>", "w", stream="W")
    await world.js.publish(f"W.{number}", b"x")
    for message in await world.kept["worker"].fetch(1, timeout=10):
        await message.ack_sync()


async def durables(world: World, number: int) -> None:
    await world.filled("P")
    name = f"d{number}"
    pull = await world.js.pull_subscribe("P.>", name, stream="P")
    for message in await pull.fetch(2, timeout=10):
        await message.ack()
    await pull.unsubscribe()
    await world.api(f"CONSUMER.DELETE.P.{name}")
    push = await world.js.subscribe("P.>", stream="P", durable=f"p{number}")
    await push.next_msg(10)
    await push.unsubscribe()
    await world.api(f"CONSUMER.DELETE.P.p{number}")


async def ordered_consumers(world: World, number: int) -> None:
    await world.filled("R")
    found = await world.js.subscribe("R.>", stream="R", ordered_consumer=True)
    await found.next_msg(10)
    name = (await found.consumer_info()).name
    await found.unsubscribe()
    await world.api(f"CONSUMER.DELETE.R.{name}")


async def pull_requests_that_end(world: World, number: int) -> None:
    await world.stream("E")
    if "idle" not in world.kept:
        world.kept["idle"] = await world.js.add_consumer(
            "E", ConsumerConfig(durable_name="e", ack_policy="explicit")
        )
    inbox = await world.client.subscribe(f"pulled.{number}")
    body = json.dumps({"batch": 3, "expires": 5_000_000}).encode()
    await world.client.publish("$JS.API.CONSUMER.MSG.NEXT.E.e", body, reply=f"pulled.{number}")
    await inbox.next_msg(10)
    await inbox.unsubscribe()


async def redeliveries(world: World, number: int) -> None:
    await world.filled("N")
    if "naks" not in world.kept:
        world.kept["naks"] = await world.js.pull_subscribe("N.>", "n", stream="N")
    for message in await world.kept["naks"].fetch(1, timeout=10):
        await message.nak()


async def values(world: World, number: int) -> None:
    if "bucket" not in world.kept:
        world.kept["bucket"] = await world.js.create_key_value(
            bucket="B", history=2, replicas=world.replicas
        )
    bucket = world.kept["bucket"]
    key = f"k{number % 3}"
    await bucket.put(key, b"1")
    await bucket.get(key)
    await bucket.delete(key)
    await bucket.purge(key)


async def new_keys(world: World, number: int) -> None:
    await world.stream("K", max_msgs_per_subject=1)
    await world.js.publish(f"K.{number}", b"x")
    await world.api("STREAM.PURGE.K", filter=f"K.{number}")


async def odd_requests(world: World, number: int) -> None:
    for request in (f"STREAM.INFO.no{number}", f"CONSUMER.INFO.no.c{number}", "STREAM.CREATE.x"):
        answer = await world.client.request(f"$JS.API.{request}", b"{", timeout=10)
        assert b"error" in answer.data


async def backups(world: World, number: int) -> None:
    await world.filled("G")
    chunks = await world.client.subscribe(f"chunks.{number}")
    await world.api("STREAM.SNAPSHOT.G", deliver_subject=f"chunks.{number}")
    while (message := await chunks.next_msg(10)).data:
        if message.reply:
            await message.respond(b"")
    await chunks.unsubscribe()


ALONE: tuple[Story, ...] = (
    connections,
    refused_logins,
    websockets,
    services,
    traces,
    backups,
)
"""Told to a node alone."""

ANYWHERE: tuple[Story, ...] = (
    subscriptions,
    subscriptions_with_an_end,
    requests_for_nobody,
    streams,
    changed_streams,
    streams_at_a_limit,
    short_lived_messages,
    deleted_messages,
    batches,
    work,
    durables,
    ordered_consumers,
    pull_requests_that_end,
    redeliveries,
    values,
    new_keys,
    odd_requests,
)
"""Told to a node alone, too."""

CLUSTERED: tuple[Story, ...] = (
    subscriptions,
    streams_that_get_replicas,
    work,
    streams,
    values,
    durables,
    odd_requests,
)
"""Told to a cluster of three, those that a node alone hears as well."""
