"""`headwater fleet flash` over real SSH: from nothing to joined, and again without a change."""

from tests.deploy.fleet.flashing import flash, fleet, inventory
from tests.deploy.fleet.lab import Lab, needs_sshd
from tests.deploy.keys.hub_of_keys import Hub

pytestmark = needs_sshd


def test_a_fleet_from_nothing_joins_and_a_second_run_changes_nothing(hub: Hub, lab: Lab) -> None:
    first, second = lab.add("gw-1", "gw-2")
    inventory(hub, lab)
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
    listed = fleet(lab, "ls")
    assert {host["state"] for host in listed.values()} == {"joined"}
