"""A gateway of another architecture, and one with another Python: each is flashed over SSH, joins,
is cut from its power, and taken back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.security.nkeys import KeyPair
from tests.deploy.fleet.flash.flashing import EDGE, flash, store_some, stored, tokens
from tests.deploy.fleet.foreign import SYSTEMS, ForeignMachine
from tests.deploy.fleet.lab import Lab, needs_sshd, thorough, variant
from tests.deploy.keys.hub_of_keys import Hub
from tests.waiting import until_seen

pytestmark = [needs_sshd, thorough, pytest.mark.timeout(900)]

SLOW_S = 300
CRASHES = {"headwater/deploy/serve.py": "raise SystemExit(7)\n"}


@pytest.fixture(params=SYSTEMS)
def machine(lab: Lab, request: pytest.FixtureRequest) -> Iterator[ForeignMachine]:
    """A machine that has booted and was never flashed."""
    system = SYSTEMS[request.param]
    system.skip_unless_it_runs()
    made = lab.keep(ForeignMachine(lab.folder, "gw-1", lab.authorized))
    made.system = system
    made.start()
    yield made


def write(hub: Hub, lab: Lab, machine: ForeignMachine, bundle: tuple[Path, KeyPair]) -> None:
    """The inventory of the machine."""
    lab.bundle_key = bundle[1]
    tokens_of = str(lab.folder / "enrol")
    if not Path(tokens_of).exists():
        tokens_of = tokens(hub, lab)
    lab.write(
        hub.leaf_url, template=EDGE, enrol=tokens_of, hosts=machine.entry(), bundle=bundle[0],
        deadline=SLOW_S,
    )  # fmt: skip


REFUSED = {"arm64": "aarch64", "python314": "Python 3.14"}


def test_a_gateway_unlike_this_machine(
    hub: Hub, lab: Lab, machine: ForeignMachine, bundle: tuple[Path, KeyPair], tmp_path: Path
) -> None:
    write(hub, lab, machine, bundle)
    wrong = flash(lab, status=1)["gw-1"]
    assert REFUSED[machine.system.name] in wrong["error"], wrong

    path, key = machine.system.bundle()
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    write(hub, lab, machine, (copy, key))
    first = flash(lab)["gw-1"]
    assert (first["state"], first["phase"]) == ("changed", "commit"), first
    status = machine.status()
    assert status["node"]["joined"], status
    store_some(machine, 100)
    assert flash(lab)["gw-1"]["state"] == "unchanged"

    write(hub, lab, machine, (variant(copy, key, "0.9.0", CRASHES), key))
    bad = flash(lab, status=1)["gw-1"]
    assert bad["state"] in ("failed", "rolled_back"), bad
    until_seen(lambda: machine.status()["version"] == first["version"], "the one before", SLOW_S)
    until_seen(lambda: machine.status()["node"].get("joined"), "the one before", SLOW_S)
    assert stored(machine) == 100

    machine.power_cut()
    machine.start()
    machine.inside("/opt/headwater/headwater-service", "start")
    until_seen(lambda: machine.status()["node"].get("joined"), "the node at boot", SLOW_S)
    assert stored(machine) == 100
