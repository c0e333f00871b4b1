"""A link sends no more bytes a second than its end says, and what is urgent still goes ahead."""

import asyncio
import os
import time

import pytest
from nats.aio.msg import Msg
from nats.js.api import ExternalStream, StreamConfig, StreamSource

from headwater.edge.conf.load import load_text
from headwater.edge.conf.problems import ConfigError
from headwater.edge.node.node import Node
from headwater.edge.node.reload import reload_node
from tests.federation.lab import JETSTREAM, Lab, client_port, leaf_port, leafs
from tests.slow_reader import opened
from tests.waiting import until

RATE = 256 * 1024
BULK = 600
SIZE = 1000


def hub_config(lab: Lab, rate: str) -> str:
    return JETSTREAM.format(store=lab.directory / "hub", domain="hub") + (
        f"leafnodes {{ listen: 127.0.0.1:-1, {rate} }}"
    )


def edge_config(lab: Lab, hub: Node, rate: str) -> str:
    return JETSTREAM.format(store=lab.directory / "edge", domain="edge") + (
        'leafnodes { reconnect: "50ms", remotes [ '
        f'{{ url: "nats://127.0.0.1:{leaf_port(hub)}", {rate} }} ] }}'
    )


async def seconds_to_copy(lab: Lab, origin: Node, copy: Node, name: str) -> tuple[float, float]:
    """How long a mirror of 600 kB takes, and the longest wait for an echo meanwhile."""
    js = (await lab.client(client_port(origin))).jetstream(timeout=10)
    await js.add_stream(name=name, subjects=[name.lower()])
    await asyncio.gather(
        *(js.publish(name.lower(), os.urandom(SIZE)) for _ in range(BULK))
    )
    service = await lab.client(client_port(origin))

    async def echo(message: Msg) -> None:
        await message.respond(message.data)

    await service.subscribe("echo", cb=echo)
    client = await lab.client(client_port(copy))
    await until(lambda: copy.account("$G").has_interest(b"echo"), "the echo is known")
    begun, longest = time.monotonic(), 0.0
    api = f"$JS.{origin.options.jetstream.domain}.API"
    source = StreamSource(name=name, external=ExternalStream(api=api))
    await client.jetstream().add_stream(StreamConfig(name=f"M{name}", mirror=source))
    store = copy.jetstream.accounts["$G"].streams[f"M{name}"].store
    while store.messages < BULK:
        asked = time.monotonic()
        await client.request("echo", b"hello", timeout=10)
        longest = max(longest, time.monotonic() - asked)
    await service.close()
    return time.monotonic() - begun, longest


@pytest.mark.parametrize("end", ["hub", "edge"])
async def test_a_link_keeps_to_its_rate_and_a_reload_lifts_it(lab: Lab, end: str) -> None:
    rate = f"rate: {RATE}"
    hub = await lab.node(hub_config(lab, rate if end == "hub" else ""))
    edge = await lab.node(edge_config(lab, hub, rate if end == "edge" else ""))
    await until(lambda: leafs(hub) and leafs(edge), "the link is up")
    origin, copy = (hub, edge) if end == "hub" else (edge, hub)
    took, longest = await seconds_to_copy(lab, origin, copy, "ONE")
    # Pacing begins with what the first windows hold.
    assert took > 0.7 * BULK * SIZE / RATE
    assert longest < 0.7 * took
    before = [leaf["id"] for leaf in leafs(hub)]
    text = hub_config(lab, "") if end == "hub" else edge_config(lab, hub, "")
    reload_node(origin, load_text("listen: 127.0.0.1:-1\n" + text).options)
    freed, _ = await seconds_to_copy(lab, origin, copy, "TWO")
    assert freed < 0.6 * took
    assert [leaf["id"] for leaf in leafs(hub)] == before


@pytest.mark.parametrize("rate", ["999", "-1", "9999999999", '"fast"'])
def test_a_rate_that_is_none_is_refused(rate: str) -> None:
    for text in (
        f"leafnodes {{ listen: 127.0.0.1:-1, rate: {rate} }}",
        f'leafnodes {{ remotes [ {{ url: "nats://h:1", rate: {rate} }} ] }}',
    ):
        with pytest.raises(ConfigError, match="rate"):
            load_text(text)


def test_a_rate_may_have_a_unit() -> None:
    options = load_text('leafnodes { listen: 127.0.0.1:-1, rate: 16KB }').options
    assert options.leaf.rate == 16 * 1024


@pytest.mark.parametrize(("level", "verb"), [(1, b"LMSG"), (2, b"PMSG")])
async def test_a_slow_link_sends_large_messages_in_pieces_to_who_knows_them(
    lab: Lab, level: int, verb: bytes
) -> None:
    hub = await lab.node("leafnodes { listen: 127.0.0.1:-1, rate: 64KB }")
    told = b'"headwater":%d,' % level
    reader, writer = await opened(leaf_port(hub), b"LS+ x\r\nPING\r\n", told)
    await until(lambda: hub.account("$G").has_interest(b"x"))
    publisher = await lab.client(client_port(hub))
    await publisher.publish("x", bytes(60_000))
    found = b""
    while found not in (b"LMSG", b"PMSG"):
        found = (await asyncio.wait_for(reader.readline(), 5))[:4]
    assert found == verb
    writer.close()
