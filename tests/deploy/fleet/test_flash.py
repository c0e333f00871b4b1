"""`headwater fleet flash` over real SSH: from nothing to joined, and again without a change."""

import json
from pathlib import Path

from tests.deploy.fleet.lab import Lab, needs_sshd
from tests.deploy.keys.hub_of_keys import ACCOUNT, Hub, run

pytestmark = needs_sshd

EDGE = """
listen: "127.0.0.1:-1"
server_name: "{{ name }}"
jetstream { store_dir: "{{ store }}", domain: "{{ name }}" }
leafnodes {
  reconnect: "200ms"
  remotes: [ { urls: ["{{ hub[0] }}"], credentials: "{{ creds }}" } ]
}
"""


def tokens(hub: Hub, folder: Path, *names: str) -> str:
    """A folder with an enrolment token for each name."""
    output = folder / "enrol"
    run("keys", "gateway", *names, "--account", ACCOUNT, "--dir", hub.keys, "--output", output)
    return str(output)


def flash(lab: Lab, *more: object, status: int = 0) -> dict[str, dict[str, object]]:
    """Flash; results by host."""
    words = ("fleet", "flash", "-f", lab.inventory, "--json", *more)
    from click.testing import CliRunner

    from headwater.deploy.cli import cli

    done = CliRunner().invoke(cli, [str(word) for word in words])
    found = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {"hosts": []}
    problems = [host["error"] for host in found["hosts"]]
    assert done.exit_code == status, (problems, done.stderr, done.exception)
    return {host["name"]: host for host in found["hosts"]}


def test_a_fleet_from_nothing_joins_and_a_second_run_changes_nothing(hub: Hub, lab: Lab) -> None:
    first, second = lab.add("gw-1", "gw-2")
    lab.write(hub.leaf_url, template=EDGE, enrol=tokens(hub, lab.folder, "gw-1", "gw-2"))
    planned = flash(lab, "--dry-run")
    assert {host["state"] for host in planned.values()} == {"planned"}
    assert not first.prefix.exists()
    results = flash(lab)
    assert {host["state"] for host in results.values()} == {"changed"}, results
    assert {(host["slot"], host["phase"]) for host in results.values()} == {("a", "commit")}
    again = flash(lab)
    assert {host["state"] for host in again.values()} == {"unchanged"}
    status = second.agent("status")
    assert status["node"]["joined"], status
    assert status["node"]["links"][0]["state"] == "up"
    assert (first.data / "keys/gateway.nk").stat().st_mode & 0o777 == 0o600
    assert (first.data / "keys/gateway.nk").owner() == "nobody"
