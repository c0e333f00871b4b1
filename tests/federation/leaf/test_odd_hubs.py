"""Hubs that are reached by IPv6, and hubs that two gateways of one name dial."""

import asyncio
from typing import Any

import pytest
from nats.js import JetStreamContext
from nats.js.api import ExternalStream, StreamConfig, StreamSource

from headwater.edge.node.node import Node
from tests.edge.broker.listeners.test_dual_stack import has_ipv6
from tests.federation.lab import (
    JETSTREAM,
    Lab,
    RealServer,
    client_port,
    free_port,
    leaf_service,
    leafs,
)
from tests.waiting import until

COUNT = 100


async def server(lab: Lab, kind: str, domain: str, leafnodes: str, folder: str = "") -> Any:
    """A node (H) or a nats-server (R) with JetStream in a domain."""
    folder = folder or domain
    if kind == "R":
        text = f'jetstream {{ store_dir: "{{store}}", domain: {domain} }}'
        return await lab.real(f"{text}\nleafnodes {{ {leafnodes} }}", folder)
    text = JETSTREAM.format(store=lab.directory / f"of-{folder}", domain=domain)
    return await lab.node(f"{text}leafnodes {{ {leafnodes} }}")


async def context(lab: Lab, at: Node | RealServer) -> JetStreamContext:
    """JetStream of a server, by a client of its own."""
    port = client_port(at) if isinstance(at, Node) else at.port
    return (await lab.client(port)).jetstream(timeout=10)


def of(name: str, domain: str) -> StreamSource:
    """A stream of another domain."""
    return StreamSource(name=name, external=ExternalStream(api=f"$JS.{domain}.API"))


async def filled(js: JetStreamContext, name: str, mark: str) -> None:
    """A stream of numbered messages."""
    await js.add_stream(name=name, subjects=[f"{name}.{mark}"])
    for number in range(COUNT):
        await js.publish(f"{name}.{mark}", b"%b%d" % (mark.encode(), number))


async def content(js: JetStreamContext, name: str) -> list[str]:
    """What a stream holds, in its order."""
    state = (await js.stream_info(name)).state
    numbers = range(state.first_seq, state.last_seq + 1)
    return [((await js.get_msg(name, each)).data or b"").decode() for each in numbers]


async def has(js: JetStreamContext, name: str, count: int) -> None:
    """Wait until a stream holds so many messages."""

    async def there() -> bool:
        return (await js.stream_info(name)).state.messages >= count

    await until(there, f"{name} has {count}")


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
@pytest.mark.parametrize("kind", ["HH", "HR", "RH"])
async def test_copies_cross_an_ipv6_link(lab: Lab, kind: str) -> None:
    port = free_port()
    hub = await server(lab, kind[0], "hub", f'listen: "[::1]:{port}"')
    edge = await server(
        lab, kind[1], "edge", f'reconnect: "100ms", remotes [ {{ url: "nats://[::1]:{port}" }} ]'
    )
    node = hub if isinstance(hub, Node) else edge
    await until(lambda: leafs(node), "the link is up")
    there, here = await context(lab, hub), await context(lab, edge)
    await asyncio.gather(filled(there, "DOWN", "m"), filled(here, "UP", "m"))
    for js, name, domain in ((here, "DOWN", "hub"), (there, "UP", "edge")):
        await js.add_stream(StreamConfig(name="MIRROR", mirror=of(name, domain)))
        await js.add_stream(StreamConfig(name="ALL", sources=[of(name, domain)]))
    for js in (there, here):
        for name in ("MIRROR", "ALL"):
            await has(js, name, COUNT)
            assert await content(js, name) == [f"m{number}" for number in range(COUNT)]


@pytest.mark.parametrize("kind", ["H", "R"])
async def test_two_gateways_of_one_name_get_all_by_turns(lab: Lab, kind: str) -> None:
    """The hub ends the older link of the two each time. Both copy all of the hub's stream, and the
    hub's source never mixes the two: what it has of each is in order and there once."""
    port = free_port()
    hub = await server(lab, kind, "hub", f"listen: 127.0.0.1:{port}")
    there = await context(lab, hub)
    await filled(there, "DOWN", "m")
    remote = f'reconnect: "500ms", remotes [ {{ url: "nats://127.0.0.1:{port}" }} ]'
    edges = [await server(lab, "H", "edge", remote, folder) for folder in ("one", "two")]
    (one, two) = [await context(lab, each) for each in edges]
    await asyncio.gather(filled(one, "UP", "a"), filled(two, "UP", "b"))
    await there.add_stream(StreamConfig(name="ALL", sources=[of("UP", "edge")]))
    for js in (one, two):
        await js.add_stream(StreamConfig(name="MIRROR", mirror=of("DOWN", "hub")))
        await js.add_stream(StreamConfig(name="SOURCED", sources=[of("DOWN", "hub")]))
    for js in (one, two):
        for name in ("MIRROR", "SOURCED"):
            await has(js, name, COUNT)
            assert await content(js, name) == [f"m{number}" for number in range(COUNT)]
    dialled = [leaf_service(each).remotes[0] for each in edges]
    await until(lambda: sum(each.connects for each in dialled) > 2, "they take turns")
    if kind == "R":
        return  # A nats-server's source asks for no identity.
    await has(there, "ALL", 2 * COUNT)
    found = await content(there, "ALL")
    for mark in "ab":
        mine = [each for each in found if each[0] == mark]
        assert mine == [f"{mark}{number}" for number in range(COUNT)]
