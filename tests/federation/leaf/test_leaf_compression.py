"""Compression of leaf links, with the real server at either end."""

import json
from typing import Any

import pytest

from headwater.edge.node.node import Node
from tests.federation.lab import Lab, Wire, client_port, free_port, leaf_service, leafs
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


async def test_bulk_on_a_fast_line_is_no_distance(lab: Lab) -> None:
    """`s2_auto` compresses for a round trip that was measured twice, and not behind bulk."""
    hub, spoke, _ = await linked(lab, "HH", "s2_auto", "s2_auto")
    (conn,) = leaf_service(hub).links.of_account("$G")
    conn.rtt_ns, conn.rtt_bytes, pings = 1_000_000, 0, conn.pings_out
    conn.session.got_pong(conn)
    assert conn.session.compression == "s2_uncompressed"
    plain = "s2_uncompressed"
    for moved, modes in ((1 << 20, [plain] * 3), (1000, [plain, "s2_better"])):
        for number, mode in enumerate(modes):
            conn.rtt_ns, conn.rtt_bytes = 60_000_000, moved
            conn.session.got_pong(conn)
            assert conn.session.compression == mode, (moved, number)
    assert conn.pings_out > pings
    conn.rtt_ns = 1_000_000
    conn.session.got_pong(conn)
    assert conn.session.compression == "s2_uncompressed"

    client = await lab.client(client_port(spoke))
    got = await client.subscribe("data")
    await client.flush()
    account = hub.accounts["$G"]
    await until(lambda: account.has_interest(b"data"), "interest crosses")
    conn.pinged_ns = 0
    conn.ping()
    account.send(b"data", bytes(100_000))
    assert len((await got.next_msg(5)).data) == 100_000
    await until(lambda: not conn.pinged_ns, "the answer")
    assert 100_000 <= conn.rtt_bytes < 110_000
