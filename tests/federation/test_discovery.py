"""Hubs found by zeroconf on the loopback interface."""

import secrets

from headwater.edge.discovery import instance_name
from tests.federation.lab import Lab, leaf_service, leafs, until


async def test_an_edge_finds_its_hub_and_has_to_log_in(lab: Lab) -> None:
    label = f"test-{secrets.token_hex(4)}"
    service = "_hwtest._tcp.local."
    listener = (
        "leafnodes { listen: 127.0.0.1:-1, authorization { user: leaf, password: right } }\n"
        f'headwater {{ discovery {{ enabled: true, service: "{service}", cluster: %s }} }}'
    )
    remote = (
        f'leafnodes {{ reconnect: "100ms", remotes [ {{ url: "discover://leaf:%s@{label}" }} ] }}\n'
        f'headwater {{ discovery {{ enabled: true, service: "{service}" }} }}'
    )
    edge = await lab.node(remote % "right")
    stranger = await lab.node(remote % "wrong")
    assert leaf_service(edge).status()["remotes"][0]["last_error"] in ("", "no hub found yet")
    hub = await lab.node(listener % label)
    await lab.node(listener % "other")
    await until(lambda: leafs(edge), "the hub was found")
    assert len(leafs(hub)) == 1

    def refused() -> bool:
        return "Authorization Violation" in leaf_service(stranger).status()["remotes"][0][
            "last_error"
        ]

    await until(refused, "a stranger is turned away")
    found = leaf_service(edge).status()["discovery"]["hubs"]
    assert [each["node_id"] for each in found if each["cluster"] == label] == [hub.server_id]


def test_instance_names_are_one_label() -> None:
    assert instance_name("a.b") == "a-b"
    assert len(instance_name("ä" * 80).encode()) <= 63
    assert instance_name("") == "headwater"
