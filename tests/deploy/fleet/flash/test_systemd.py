"""A gateway whose first process is systemd: flashed, upgraded, taken back, cut from its power."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.security.nkeys import KeyPair
from tests.deploy.fleet.flash.flashing import EDGE, flash, store_some, stored, tokens
from tests.deploy.fleet.lab import Lab, needs_sshd, thorough, variant
from tests.deploy.fleet.machine import Machine, skip_unless_it_boots
from tests.deploy.keys.hub_of_keys import Hub
from tests.waiting import until_seen

pytestmark = [needs_sshd, thorough, pytest.mark.timeout(600)]

UNIT = "headwater.service"
CRASHES = {"headwater/deploy/serve.py": "raise SystemExit(7)\n"}


@pytest.fixture
def machine(hub: Hub, lab: Lab) -> Iterator[Machine]:
    """A machine that has booted and was never flashed."""
    skip_unless_it_boots()
    made = lab.keep(Machine(lab.folder, "gw-1", lab.authorized))
    made.start()
    yield made


def write(hub: Hub, lab: Lab, machine: Machine, bundle: Path | None = None) -> None:
    """The inventory of the machine."""
    entry = machine.entry(service="systemd", run_as="headwater")
    tokens_of = str(lab.folder / "enrol")
    if not Path(tokens_of).exists():
        tokens_of = tokens(hub, lab)
    lab.write(hub.leaf_url, template=EDGE, enrol=tokens_of, hosts=entry, bundle=bundle)


def test_a_machine_from_nothing_through_a_bad_version_and_a_power_cut(
    hub: Hub, lab: Lab, machine: Machine, bundle: tuple[Path, KeyPair]
) -> None:
    write(hub, lab, machine)
    first = flash(lab)["gw-1"]
    assert first["state"] == "changed", first
    assert machine.unit(UNIT, "ActiveState") == "active"
    assert (machine.unit(UNIT, "Type"), machine.unit(UNIT, "User")) == ("notify", "headwater")
    assert machine.unit(UNIT, "WatchdogUSec") == "30s"
    assert machine.inside("stat", "-c", "%U %a", str(machine.data)).split()[0] == "headwater"
    store_some(machine, 100)
    assert flash(lab)["gw-1"]["state"] == "unchanged"

    write(hub, lab, machine, variant(*bundle, "0.9.0", CRASHES))
    bad = flash(lab, status=1)["gw-1"]
    assert bad["state"] in ("failed", "rolled_back"), bad
    assert machine.status()["version"] == first["version"]
    until_seen(lambda: machine.unit(UNIT, "ActiveState") == "active", "the version before", 60)
    assert stored(machine) == 100

    write(hub, lab, machine, variant(*bundle, "0.9.1", {}))
    good = flash(lab)["gw-1"]
    assert (good["state"], good["version"]) == ("changed", "0.9.1"), good
    machine.power_cut()
    machine.start()
    until_seen(lambda: machine.unit(UNIT, "ActiveState") == "active", "the node at boot", 90)
    assert machine.status()["version"] == "0.9.1"
    until_seen(lambda: stored(machine) == 100, "what was stored", 30)


def test_a_node_that_hangs_is_ended_by_the_watchdog(hub: Hub, lab: Lab, machine: Machine) -> None:
    write(hub, lab, machine)
    assert flash(lab)["gw-1"]["state"] == "changed"
    before = machine.unit(UNIT, "MainPID")
    machine.inside("systemctl", "kill", "--signal=STOP", "--kill-whom=main", UNIT)
    until_seen(
        lambda: machine.unit(UNIT, "MainPID") not in (before, "0")
        and machine.unit(UNIT, "ActiveState") == "active",
        "another process", 120,
    )  # fmt: skip
    assert machine.unit(UNIT, "NRestarts") == "1"
