"""A nats-py program with streams, key-value and objects, on an edge and through the link.

Key-value buckets are used where the client is: `$KV.>` does not cross between domains, on the real
server neither.
"""

import os

import nats
import pytest
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.errors import KeyNotFoundError

from bench.servers import Recipe, Server, free_port, program
from tests.waiting import until

COMMANDS = {"headwater": (program("headwater"), "serve"), "real": (program("nats-server"),)}
HUB = """
jetstream {{ store_dir: store, domain: hub }}
leafnodes {{ listen: "127.0.0.1:{port}", authorization {{ user: edge, password: p }} }}
"""
EDGE = """
jetstream {{ store_dir: store, domain: edge }}
leafnodes {{ remotes: [ {{ url: "nats://edge:p@127.0.0.1:{port}" }} ] }}
"""


async def use_streams(js: JetStreamContext, name: str) -> None:
    await js.add_stream(name=name, subjects=[f"{name}.>"])
    for number in range(100):
        await js.publish(f"{name}.{number % 3}", b"%d" % number)
    consumer = await js.pull_subscribe(f"{name}.>", durable="worker")
    got: list[int] = []
    while len(got) < 100:
        for message in await consumer.fetch(30, timeout=3):
            await message.ack()
            got.append(int(message.data))
    assert sorted(got) == list(range(100))


async def use_buckets(js: JetStreamContext) -> None:
    bucket = await js.create_key_value(bucket="settings", history=5)
    await bucket.put("a", b"1")
    await bucket.put("b", b"2")
    await bucket.update("a", b"3", last=1)
    await bucket.delete("b")
    assert (await bucket.get("a")).value == b"3"
    assert [entry.value for entry in await bucket.history("a")] == [b"1", b"3"]
    with pytest.raises(KeyNotFoundError):
        await bucket.get("b")


async def use_objects(js: JetStreamContext, name: str) -> None:
    store = await js.create_object_store(bucket=name)
    data = os.urandom(500_000)
    await store.put("blob", data)
    assert (await store.get("blob")).data == data


async def run_program(port: int, name: str, domain: str | None) -> None:
    client = await nats.connect(f"nats://127.0.0.1:{port}")
    js = client.jetstream(domain=domain)

    async def reached() -> bool:
        try:
            await js.account_info()
        except NatsError:
            return False
        return True

    await until(reached, f"domain {domain}")
    await use_streams(js, name)
    await use_objects(js, name)
    if domain is None:
        await use_buckets(js)
    await client.close()


@pytest.mark.parametrize(
    ("hub", "edge"), [("headwater", "headwater"), ("real", "headwater"), ("headwater", "real")]
)
async def test_a_program_on_the_edge_and_through_the_link(hub: str, edge: str) -> None:
    port = free_port()
    with (
        Server(Recipe("hub", COMMANDS[hub], HUB.format(port=port))) as upper,
        Server(Recipe("edge", COMMANDS[edge], EDGE.format(port=port))) as lower,
    ):
        await run_program(lower.port, "local", None)
        await run_program(lower.port, "remote", "hub")
        await run_program(upper.port, "down", "edge")
