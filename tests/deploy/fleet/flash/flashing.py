"""Flashing as a test does it: keys, tokens, a template, and results by host."""

import json
from typing import Any

from click.testing import CliRunner

from headwater.deploy.cli import cli
from headwater.edge.wire.client import Client
from tests.deploy.fleet.lab import Gateway, Lab
from tests.deploy.keys.hub_of_keys import ACCOUNT, Hub, run

EDGE = """
listen: "127.0.0.1:{{ port }}"
server_name: "{{ name }}"
jetstream { store_dir: "{{ store }}", domain: "{{ name }}" }
leafnodes {
  reconnect: "200ms"
  remotes: [ { urls: ["{{ hub[0] }}"], credentials: "{{ creds }}" } ]
}
"""


def tokens(hub: Hub, lab: Lab) -> str:
    """A folder with an enrolment token for each gateway of a lab."""
    output = lab.folder / "enrol"
    names = [gateway.name for gateway in lab.gateways]
    run("keys", "gateway", *names, "--account", ACCOUNT, "--dir", hub.keys, "--output", output)
    return str(output)


def inventory(hub: Hub, lab: Lab, **more: Any) -> None:
    """An inventory of all gateways of a lab that joins them to a hub."""
    lab.write(hub.leaf_url, template=EDGE, enrol=tokens(hub, lab), **more)


def fleet(lab: Lab, verb: str, *more: object, status: int = 0) -> dict[str, dict[str, Any]]:
    """A command over the inventory; results by host."""
    words = ("fleet", verb, "-f", lab.inventory, "--json", *more)
    done = CliRunner().invoke(cli, [str(word) for word in words])
    found = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {"hosts": []}
    problems = [(host["name"], host["state"], host["error"]) for host in found["hosts"]]
    assert done.exit_code == status, (problems, done.stderr, done.exception)
    return {host["name"]: host for host in found["hosts"]}


def flash(lab: Lab, *more: object, status: int = 0) -> dict[str, dict[str, Any]]:
    """Flash; results by host."""
    return fleet(lab, "flash", *more, status=status)


def store_some(gateway: Gateway, count: int) -> None:
    """Messages into a stream of a gateway."""
    with Client(gateway.url) as client:
        client.api("STREAM.CREATE.WORK", name="WORK", subjects=["work.>"])
        for number in range(count):
            client.request("work.x", b"%d" % number)


def stored(gateway: Gateway) -> int:
    """How many there are."""
    with Client(gateway.url) as client:
        return int(client.api("STREAM.INFO.WORK")["state"]["messages"])
