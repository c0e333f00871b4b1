"""A flash that ends in each of its phases, by a cut connection or with its program, leaves a
gateway whole, and the same command run again completes it."""

import subprocess
import sys
from pathlib import Path

import pytest

from headwater.deploy.fleet.flash.host_run import PHASES
from headwater.edge.wire.message import WireError
from headwater.security.nkeys import KeyPair
from tests.deploy.fleet.flash.flashing import flash, inventory, store_some, stored
from tests.deploy.fleet.lab import Gateway, Lab, needs_sshd, thorough, variant
from tests.deploy.keys.hub_of_keys import Hub
from tests.waiting import until_seen

pytestmark = [needs_sshd, thorough, pytest.mark.timeout(900)]

MESSAGES = 20
LIMIT_S = 120
DRIVER = """
import subprocess, sys
from headwater.deploy.cli import cli
from headwater.deploy.fleet.flash.board import PhaseBoard

phase, command = sys.argv[1:3]
begun = PhaseBoard.begun

def begins(self, host, name):
    begun(self, host, name)
    if name == phase:
        subprocess.run(["sh", "-c", command])

PhaseBoard.begun = begins
cli(sys.argv[3:])
"""
"""`headwater` that runs a command of the shell when a phase begins."""
WAYS = {
    "cut": "pkill -KILL -P {ssh}",
    "killed": "kill -KILL $PPID",
    "interrupted": "kill -INT $PPID",
}


def flash_until(lab: Lab, gateway: Gateway, phase: str, way: str) -> int:
    """Flash, and end it when a phase begins; the exit status."""
    command = WAYS[way].format(ssh=gateway.ssh_pid)
    words = [sys.executable, "-c", DRIVER, phase, command, "fleet", "flash", "-f",
             str(lab.inventory), "--json"]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode


def version_of(gateway: Gateway) -> str:
    """What runs there and has joined; empty while nothing has."""
    node = gateway.agent("status").get("node") or {}
    return str(node["version"]) if node.get("joined") else ""


def has_all(gateway: Gateway) -> bool:
    """Whether the node is there with everything; an old program may just be starting it anew."""
    try:
        return stored(gateway) == MESSAGES
    except WireError:
        return False


@pytest.mark.parametrize("way", WAYS)
def test_a_flash_that_ends_in_each_phase(
    way: str, hub: Hub, lab: Lab, bundle: tuple[Path, KeyPair]
) -> None:
    (gateway,) = lab.add("gw-1")
    inventory(hub, lab)
    before = flash(lab)["gw-1"]["version"]
    store_some(gateway, MESSAGES)
    for number, phase in enumerate(PHASES):
        wanted = f"0.4.{number}"
        inventory(hub, lab, bundle=variant(*bundle, wanted, {}))
        status = flash_until(lab, gateway, phase, way)
        assert way == "cut" or status != 0, phase
        until_seen(lambda known=(before, wanted): version_of(gateway) in known, phase, LIMIT_S)
        until_seen(lambda: has_all(gateway), phase, LIMIT_S)
        result = flash(lab)["gw-1"]
        assert (result["version"], result["error"]) == (wanted, ""), (phase, result)
        until_seen(lambda new=wanted: version_of(gateway) == new, phase, LIMIT_S)
        assert stored(gateway) == MESSAGES
        before = wanted


@pytest.mark.parametrize("way", ["cut", "killed"])
def test_a_first_flash_that_ends_in_each_phase(way: str, hub: Hub, lab: Lab) -> None:
    for phase in PHASES:
        (gateway,) = lab.add(f"gw-{phase}")
        inventory(hub, lab, hosts=gateway.entry())
        flash_until(lab, gateway, phase, way)
        result = flash(lab)[gateway.name]
        assert (result["version"], result["error"]) == ("0.1.0", ""), (phase, result)
        until_seen(lambda made=gateway: version_of(made) == "0.1.0", phase, LIMIT_S)
        gateway.stop()
        gateway.power_cut()
