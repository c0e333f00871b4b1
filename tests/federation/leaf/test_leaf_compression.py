"""Compression of leaf links, with the real server at either end."""

import json
from typing import Any

import pytest

from headwater.edge.node.node import Node
from headwater.federation.leaf import compression
from tests.federation.lab import Lab, Wire, client_port, free_port, leafs
from tests.federation.leaf.test_leaf_tls import certificate
from tests.waiting import until

TELEMETRY = [
    json.dumps(
        {"device": f"gateway-{i % 7}", "time": 1_700_000_000 + i, "temperature": 20 + i % 13 / 10,
         "pressure": 1013.25 + i % 5, "state": "running", "alarms": []}
    ).encode()
    for i in range(500)
]  # fmt: skip


async def linked(
    lab: Lab, kind: str, hub_mode: str, spoke_mode: str, hub_tls: str = "", spoke_tls: str = ""
) -> tuple[Any, Any, Wire]:
    """A hub and a spoke of these kinds, and the wire between them."""
    port = free_port()
    hub_config = f"leafnodes {{ listen: 127.0.0.1:{port}, compression: {hub_mode}, {hub_tls} }}"
    hub = await (lab.node(hub_config) if kind[0] == "H" else lab.real(hub_config, "hub"))
    wire = await lab.wire(port)
    spoke_config = (
        f'leafnodes {{ reconnect: "100ms", remotes [ {{ url: "nats-leaf://127.0.0.1:{wire.port}", '
        f"ignore_discovered_servers: true, compression: {spoke_mode}, {spoke_tls} }} ] }}"
    )
    spoke = await (lab.node(spoke_config) if kind[1] == "H" else lab.real(spoke_config, "spoke"))
    node = hub if isinstance(hub, Node) else spoke
    await until(lambda: leafs(node), "the link is up")
    return hub, spoke, wire


async def crossed(lab: Lab, hub: Any, spoke: Any, bodies: list[bytes]) -> None:
    """Send messages in both directions, which arrive as they were."""
    ports = [client_port(each) if isinstance(each, Node) else each.port for each in (hub, spoke)]
    for sender, receiver in (ports, ports[::-1]):
        one, other = await lab.client(sender), await lab.client(receiver)
        got = await other.subscribe("data", pending_bytes_limit=-1, pending_msgs_limit=-1)
        ready = await other.subscribe("ready")
        await other.flush()

        async def known(one: Any = one, ready: Any = ready) -> bool:
            await one.publish("ready", b"")
            await one.flush()
            return bool(ready.pending_msgs)

        await until(known, "interest crosses")
        for body in bodies:
            await one.publish("data", body)
        await one.flush()
        assert [(await got.next_msg(5)).data for _ in bodies] == bodies
        await one.close()
        await other.close()


@pytest.mark.parametrize("mode", ["s2_fast", "s2_better", "s2_auto"])
@pytest.mark.parametrize("kind", ["HR", "RH", "HH"])
async def test_messages_cross_compressed(lab: Lab, kind: str, mode: str) -> None:
    hub, spoke, wire = await linked(lab, kind, mode, mode)
    await crossed(lab, hub, spoke, [*TELEMETRY, b"z" * 300_000, bytes(range(256)) * 900, b""])
    node = hub if isinstance(hub, Node) else spoke
    (link,) = leafs(node)
    content = 2 * (sum(map(len, TELEMETRY)) + 530_400)
    if mode == "s2_auto":
        # By the round trip, which a busy machine makes longer.
        assert link["compression"].startswith("s2_")
    else:
        assert link["compression"] == mode
        assert wire.passed < 0.5 * content


@pytest.mark.parametrize("modes", [("off", "s2_fast"), ("s2_fast", "off")])
@pytest.mark.parametrize("kind", ["HR", "RH", "HH"])
async def test_one_end_that_will_not_is_enough(
    lab: Lab, kind: str, modes: tuple[str, str]
) -> None:
    hub, spoke, _ = await linked(lab, kind, *modes)
    await crossed(lab, hub, spoke, TELEMETRY[:10])
    (link,) = leafs(hub if isinstance(hub, Node) else spoke)
    assert link["compression"] == "off"


@pytest.mark.parametrize("kind", ["HR", "RH", "HH"])
async def test_compressed_under_tls(lab: Lab, kind: str) -> None:
    certificate(lab.directory)
    pair = f'cert_file: "{lab.directory}/cert.pem", key_file: "{lab.directory}/key.pem"'
    hub, spoke, wire = await linked(
        lab, kind, "s2_fast", "s2_fast",
        f"tls {{ {pair} }}", f'tls {{ ca_file: "{lab.directory}/cert.pem" }}',
    )
    await crossed(lab, hub, spoke, TELEMETRY)
    assert wire.passed < 1.5 * sum(map(len, TELEMETRY))


class Batches:
    """Telemetry from a hub to a spoke, in batches, and the share of its bytes that the wire saw."""

    def __init__(self, hub: Node, wire: Wire, got: Any) -> None:
        self.account, self.wire, self.got = hub.accounts["$G"], wire, got

    async def cost(self) -> float:
        """Send one batch and wait for it."""
        before = self.wire.passed
        for body in TELEMETRY:
            self.account.send(b"data", body)
        assert [(await self.got.next_msg(20)).data for _ in TELEMETRY] == TELEMETRY
        return (self.wire.passed - before) / sum(map(len, TELEMETRY))

    async def becomes(self, compressed: bool) -> None:
        """Send batches until they are compressed, or not."""

        async def reached() -> bool:
            return (await self.cost() < 0.6) == compressed

        await until(reached, "compressed" if compressed else "plain")


async def test_auto_goes_by_distance_and_not_by_bulk(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Judged by the bytes of the wire: `s2_auto` compresses when the hub is far, stops when it is
    near, begins again when it is far, and stops behind what moves fast for the line."""
    auto = '{ mode: s2_auto, rtt_thresholds: ["150ms", "100s"] }'
    hub, spoke, wire = await linked(lab, "HH", auto, auto)
    client = await lab.client(client_port(spoke))
    got = await client.subscribe("data", pending_bytes_limit=-1, pending_msgs_limit=-1)
    await client.flush()
    await until(lambda: hub.accounts["$G"].has_interest(b"data"), "interest crosses")
    batches = Batches(hub, wire, got)
    wire.delay_s = 0.2
    await batches.becomes(compressed=True)
    wire.delay_s = 0.0
    await batches.becomes(compressed=False)
    wire.delay_s = 0.2
    await batches.becomes(compressed=True)
    monkeypatch.setattr(compression, "FAST_LINE", 5000)
    await batches.becomes(compressed=False)
    assert leafs(hub)[0]["compression"] == "s2_uncompressed"


@pytest.mark.parametrize("kind", ["HH", "HR"])
async def test_a_byte_that_changed_on_the_way_ends_the_link(lab: Lab, kind: str) -> None:
    """Frames that are not compressed carry checksums, too: nobody gets a damaged message, and the
    next link goes on."""
    plain = '{ mode: s2_auto, rtt_thresholds: ["100s"] }'
    hub, spoke, wire = await linked(lab, kind, plain, plain)
    near = await lab.client(spoke.port if kind == "HR" else client_port(spoke))
    far = await lab.client(client_port(hub))
    got = await far.subscribe("data", pending_bytes_limit=-1, pending_msgs_limit=-1)
    await far.flush()
    bodies = [bytes([i]) * 1000 for i in range(50)]
    left = [30_000]
    heard: list[bytes] = []

    def damaged(data: bytes) -> bytes:
        """One byte behind the first 30,000 is another."""
        at, left[0] = left[0], left[0] - len(data)
        if not 0 <= at < len(data):
            return data
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    async def goes_on() -> bool:
        """Send until a second link has brought something."""
        second = wire.connections > 1 and bool(leafs(hub))
        for body in bodies:
            await near.publish("data", body)
        await near.flush()
        fresh = [await got.next_msg(1) for _ in range(got.pending_msgs)]
        heard.extend(message.data for message in fresh)
        return second and bool(fresh)

    wire.alter = damaged
    await until(goes_on, "another link carries what follows")
    assert left[0] < 0
    assert not set(heard) - set(bodies)
