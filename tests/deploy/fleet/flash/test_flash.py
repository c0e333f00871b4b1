"""`headwater fleet flash` over real SSH: from nothing to joined, and again without a change."""

import re
import tarfile
from pathlib import Path

import pytest

from headwater.deploy.fleet.flash.doctor import redacted
from headwater.security.nkeys import KeyPair
from tests.deploy.fleet.flash.flashing import flash, fleet, inventory
from tests.deploy.fleet.lab import Lab, needs_sshd
from tests.deploy.keys.hub_of_keys import Hub, run

pytestmark = [needs_sshd, pytest.mark.timeout(240)]

IDLE_MIB_MAX = 64


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
    resident = re.search(
        r"VmRSS:\s+(\d+) kB", Path(f"/proc/{status['node']['pid']}/status").read_text()
    )
    assert resident is not None
    assert int(resident.group(1)) < IDLE_MIB_MAX << 10
    assert (first.data / "keys/gateway.nk").stat().st_mode & 0o777 == 0o600
    assert (first.data / "keys/gateway.nk").owner() == "nobody"
    listed = fleet(lab, "ls")
    assert {host["state"] for host in listed.values()} == {"joined"}
    archive = lab.folder / "support.tgz"
    words = ["fleet", "doctor", "-f", lab.inventory, "--bundle", archive]
    assert "connectivity: 4 of 4 checks well" in run(*words)
    with tarfile.open(archive) as files:
        assert "gw-1/node.log" in files.getnames()
    first.stop()
    assert "gw-1  ssh: cannot connect" in run(*words, status=3)


def test_support_gets_no_secrets() -> None:
    pair = KeyPair.create("U")
    text = f"seed {pair.seed} at nats://ana:secret@hub:4222 with eyJh.eyJq.c2ln password: hush"
    assert redacted(text) == (
        "seed REDACTED at nats://REDACTED@hub:4222 with REDACTED password: REDACTED"
    )
