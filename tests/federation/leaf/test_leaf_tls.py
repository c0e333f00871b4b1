"""Leaf links under TLS, with either side being the real server."""

from pathlib import Path

import pytest

from tests.certificates import certificate
from tests.federation.lab import Lab, client_port, free_port, leaf_service, leafs
from tests.waiting import until


@pytest.mark.parametrize("first", ["", "handshake_first: true"], ids=["after", "first"])
@pytest.mark.parametrize("kind", ["HR", "RH", "HH"])
async def test_link_under_tls(lab: Lab, tmp_path: Path, kind: str, first: str) -> None:
    certificate(tmp_path)
    port = free_port()
    files = f'cert_file: "{tmp_path}/cert.pem", key_file: "{tmp_path}/key.pem"'
    hub_config = f"leafnodes {{ listen: 127.0.0.1:{port}, tls {{ {files}, {first} }} }}"
    spoke_config = (
        f'leafnodes {{ remotes [ {{ url: "tls://127.0.0.1:{port}", '
        f'tls {{ ca_file: "{tmp_path}/cert.pem", {first} }} }} ] }}'
    )
    ports = []
    for i, config in enumerate((hub_config, spoke_config)):
        if kind[i] == "H":
            node = await lab.node(config)
            ports.append(client_port(node))
        else:
            ports.append((await lab.real(config, f"server{i}")).port)
    await until(lambda: leafs(node), "the link is up")
    above, below = await lab.client(ports[0]), await lab.client(ports[1])
    answered = await below.subscribe("service")
    await below.flush()

    async def crossed() -> bool:
        await above.publish("service", b"z" * 300_000)
        await above.flush()
        return answered.pending_msgs > 0

    await until(crossed, "messages cross")
    assert len((await answered.next_msg(1)).data) == 300_000


async def test_a_certificate_that_nobody_vouches_for_is_refused(lab: Lab, tmp_path: Path) -> None:
    certificate(tmp_path)
    hub = await lab.node(
        "leafnodes { listen: 127.0.0.1:-1, "
        f'tls {{ cert_file: "{tmp_path}/cert.pem", key_file: "{tmp_path}/key.pem" }} }}'
    )
    port = leaf_service(hub).listener.port
    spoke = await lab.node(
        f'leafnodes {{ reconnect: "100ms", remotes [ {{ url: "nats://127.0.0.1:{port}" }} ] }}'
    )
    remote = leaf_service(spoke).remotes[0]
    await until(lambda: remote.failures >= 2, "it is tried again")
    assert "TLS Handshake Failure: self-signed certificate" in remote.last_error
    assert not leafs(spoke)
