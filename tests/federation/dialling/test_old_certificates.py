"""A hub whose certificate has ended: a pin is for its key, a name for a certificate that holds."""

from pathlib import Path

import pytest

from headwater.federation.leaf.leaf_remote import LeafRemote
from tests.certificates import certificate
from tests.federation.dialling.test_discovery import Announced, pin_of
from tests.federation.lab import Lab, leaf_service, leafs
from tests.waiting import until

NAME = 'tls {{ ca_file: "{0}/cert.pem", server_name: "hub.plant" }}'
PINS = 'hub_pins: ["{1}"]'
CASES = {"pin": (PINS, True), "name": (NAME, False), "both": (f"{NAME}, {PINS}", False)}


@pytest.mark.parametrize("case", CASES)
async def test_a_pin_is_for_the_key(lab: Lab, tmp_path: Path, case: str) -> None:
    proof, links = CASES[case]
    certificate(tmp_path, "hub.plant", days=-2)
    hub = await lab.node(
        "leafnodes { listen: 127.0.0.1:-1, authorization { user: leaf, password: right }, "
        f'tls {{ cert_file: "{tmp_path}/cert.pem", key_file: "{tmp_path}/key.pem" }} }}'
    )
    edge = await lab.node(
        'leafnodes { reconnect: "50ms", remotes [ { url: "discover://leaf:right@plant", '
        f"disabled: true, {proof.format(tmp_path, pin_of(tmp_path))} }} ] }}"
    )
    finder = Announced(f"tls://127.0.0.1:{leaf_service(hub).listener.port}")
    remote = LeafRemote(leaf_service(edge).links, edge.options.leaf.remotes[0], finder)
    remote.start()
    try:
        if links:
            await until(lambda: leafs(hub), "the hub is linked")
        else:
            await until(lambda: "expired" in remote.last_error, "it says why")
            assert "by this machine's clock; is it right?" in remote.last_error
            assert not leafs(hub)
    finally:
        await remote.stop()
