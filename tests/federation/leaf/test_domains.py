"""JetStream of one domain, used by clients of another one across a leaf link."""

import asyncio
import functools

import pytest
from nats.aio.msg import Msg
from nats.js.errors import NotFoundError

from headwater.edge.node.node import Node
from tests.federation.lab import Lab, RealServer, client_port, free_port, leafs
from tests.waiting import until

CONFIG = 'jetstream {{ store_dir: "{store}", domain: {domain} }}\nleafnodes {{ {leafnodes} }}'


async def pair(lab: Lab, kind: str) -> tuple[int, int]:
    """Client ports of a hub and a spoke with a domain each; H is Headwater, R the real server."""
    port = free_port()
    ports = []
    for i, domain in enumerate(("hub", "edge")):
        leafnodes = (
            f'reconnect: "100ms", remotes [ {{ url: "nats://127.0.0.1:{port}" }} ]'
            if i
            else f"listen: 127.0.0.1:{port}"
        )
        made: Node | RealServer
        if kind[i] == "H":
            store = lab.directory / domain
            made = await lab.node(CONFIG.format(store=store, domain=domain, leafnodes=leafnodes))
            ports.append(client_port(made))
            waiting = made
        else:
            made = await lab.real(
                CONFIG.format(store="{store}", domain=domain, leafnodes=leafnodes), domain
            )
            ports.append(made.port)
    await until(lambda: leafs(waiting), "the link is up")
    return ports[0], ports[1]


@pytest.mark.parametrize("kind", ["HR", "RH", "HH"])
async def test_streams_of_the_other_domain(lab: Lab, kind: str) -> None:
    ports = await pair(lab, kind)
    await use(lab, ports[1], ports[0], "hub")
    await use(lab, ports[0], ports[1], "edge")


async def use(lab: Lab, here: int, there: int, domain: str) -> None:
    """A client `here` makes, fills and reads a stream of the domain `there`."""
    client = await lab.client(here)
    owner = (await lab.client(there)).jetstream(timeout=10)
    remote = client.jetstream(domain=domain, timeout=10)
    stream = f"S{domain}"

    async def known() -> bool:
        try:
            await remote.account_info()
        except Exception:
            return False
        return True

    await until(known, "the API of the other domain answers")
    await remote.add_stream(name=stream, subjects=[f"{domain}.>"])
    with pytest.raises(NotFoundError):
        await client.jetstream(timeout=10).stream_info(stream)
    assert (await owner.stream_info(stream)).config.name == stream

    async def published(i: int) -> bool:
        try:
            headers = {"Nats-Msg-Id": str(i)}
            await remote.publish(f"{domain}.{i}", b"%d" % i, timeout=1, headers=headers)
        except Exception:
            return False
        return True

    for i in range(20):
        await until(functools.partial(published, i), "the stream is reached")
    pull = await remote.pull_subscribe(f"{domain}.>", durable="puller", stream=stream)
    messages = await pull.fetch(20, timeout=10)
    assert [m.subject for m in messages] == [f"{domain}.{i}" for i in range(20)]
    assert messages[3].headers == {"Nats-Msg-Id": "3"}
    for message in messages:
        await message.ack_sync(timeout=5)
    info = await owner.consumer_info(stream, "puller")
    assert (info.num_pending, info.num_ack_pending) == (0, 0)
    await pushed(remote, stream, domain)


async def pushed(remote: object, stream: str, domain: str) -> None:
    """A push consumer delivers across the link, under the stored subjects."""
    got: asyncio.Queue[Msg] = asyncio.Queue()
    await remote.subscribe(f"{domain}.>", stream=stream, cb=got.put)  # type: ignore[attr-defined]
    subjects = [(await asyncio.wait_for(got.get(), 10)).subject for _ in range(20)]
    assert subjects == [f"{domain}.{i}" for i in range(20)]
