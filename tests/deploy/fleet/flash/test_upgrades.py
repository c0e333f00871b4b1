"""New versions that are good and bad: kept, or taken back with data and link as they were."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.security.nkeys import KeyPair
from tests.deploy.fleet.flash.flashing import flash, fleet, inventory, store_some, stored
from tests.deploy.fleet.lab import Gateway, Lab, needs_sshd, thorough, variant
from tests.deploy.keys.hub_of_keys import Hub
from tests.waiting import until_seen

pytestmark = [needs_sshd, pytest.mark.timeout(300)]

CRASHES = {
    "headwater/deploy/compose.py": "def services_for(options):\n    raise RuntimeError('bad')\n",
}
CANNOT_LOAD = {"headwater/deploy/compose.py": "raise RuntimeError('bad')\n"}
NEVER_JOINS = {
    "headwater/federation/service.py": "def leaf_services(options):\n    return []\n",
}
MESSAGES = 20


def joined(gateway: Gateway, version: str) -> bool:
    """Whether a gateway runs a version that is joined."""
    status = gateway.agent("status")
    node = status.get("node") or {}
    return bool(node.get("joined")) and node["version"] == version


def flash_in_background(lab: Lab) -> "subprocess.Popen[str]":
    """The command as a process of its own."""
    words = [sys.executable, "-m", "headwater.deploy.main", "fleet", "flash", "-f",
             str(lab.inventory), "--json"]  # fmt: skip
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@thorough
def test_bad_versions_go_back_by_themselves_and_good_ones_stay(
    hub: Hub, lab: Lab, bundle: tuple[Path, KeyPair]
) -> None:
    (gateway,) = lab.add("gw-1")
    inventory(hub, lab)
    assert flash(lab)["gw-1"]["version"] == "0.1.0"
    store_some(gateway, MESSAGES)

    inventory(hub, lab, bundle=variant(*bundle, "0.1.1", CRASHES))
    result = fleet(lab, "upgrade", status=1)["gw-1"]
    assert (result["state"], result["version"], result["slot"]) == ("rolled_back", "0.1.0", "a")
    assert "ended 3 times" in result["error"]
    until_seen(lambda: joined(gateway, "0.1.0"), what="the version before")
    assert stored(gateway) == MESSAGES

    inventory(hub, lab, bundle=variant(*bundle, "0.1.1", CANNOT_LOAD))
    result = flash(lab, status=1)["gw-1"]
    assert (result["state"], result["phase"], result["version"]) == (
        "failed", "configure", "0.1.0",
    )  # fmt: skip

    inventory(hub, lab, bundle=variant(*bundle, "0.1.2", NEVER_JOINS), deadline=6)
    result = flash(lab, status=1)["gw-1"]
    assert (result["state"], result["version"]) == ("rolled_back", "0.1.0")
    until_seen(lambda: joined(gateway, "0.1.0"), what="the version before")
    assert stored(gateway) == MESSAGES

    inventory(hub, lab, bundle=variant(*bundle, "0.1.3", {}))
    result = fleet(lab, "upgrade")["gw-1"]
    assert (result["state"], result["version"], result["slot"]) == ("changed", "0.1.3", "b")
    assert stored(gateway) == MESSAGES

    result = fleet(lab, "rollback")["gw-1"]
    assert (result["state"], result["version"], result["slot"]) == ("changed", "0.1.0", "a")
    assert joined(gateway, "0.1.0")
    assert stored(gateway) == MESSAGES


@thorough
def test_a_store_format_without_a_way_back_is_refused_first(
    hub: Hub, lab: Lab, bundle: tuple[Path, KeyPair]
) -> None:
    lab.add("gw-1")
    inventory(hub, lab)
    flash(lab)
    later = variant(*bundle, "0.2.0", {}, store={"reads": 1, "writes": 2})
    inventory(hub, lab, bundle=later)
    result = flash(lab, status=1)["gw-1"]
    assert (result["state"], result["phase"]) == ("failed", "plan")
    assert "no way back" in result["error"]


def test_a_power_cut_on_trial_brings_the_version_before_back(
    hub: Hub, lab: Lab, bundle: tuple[Path, KeyPair]
) -> None:
    (gateway,) = lab.add("gw-1")
    inventory(hub, lab)
    flash(lab)
    store_some(gateway, MESSAGES)
    inventory(hub, lab, bundle=variant(*bundle, "0.1.2", NEVER_JOINS), deadline=200)
    process = flash_in_background(lab)
    until_seen(lambda: _on_trial(gateway), "the trial", 60)
    gateway.power_cut()
    out, _ = process.communicate(timeout=60)
    assert json.loads(out)["hosts"][0]["state"] == "failed"
    subprocess.run([gateway.prefix / "headwater-service", "start"], check=True)
    until_seen(lambda: joined(gateway, "0.1.0"), what="the version before")
    assert gateway.agent("status")["state"]["last"]["outcome"] == "rolled_back"
    assert stored(gateway) == MESSAGES


def _on_trial(gateway: Gateway) -> Any:
    """Whether the version on trial is up."""
    status = gateway.agent("status")
    return status["state"]["trying"] and status["node"].get("slot") == "b"


MARKS = {
    "upload": "incoming/*.part", "install": "slots/.?.new/site", "joined": "state.json",
}  # fmt: skip


@thorough
def test_a_flash_that_is_killed_leaves_a_gateway_whole(
    hub: Hub, lab: Lab, bundle: tuple[Path, KeyPair]
) -> None:
    (gateway,) = lab.add("gw-1")
    inventory(hub, lab)
    flash(lab)
    for number, (phase, mark) in enumerate(MARKS.items()):
        inventory(hub, lab, bundle=variant(*bundle, f"0.3.{number}", {}))
        before = gateway.agent("status")["version"]
        process = flash_in_background(lab)
        if phase == "joined":
            until_seen(lambda: gateway.agent("status")["state"]["trying"], phase, 60)
        else:
            until_seen(lambda at=mark: list(gateway.prefix.glob(at)), phase, 60)
        os.kill(process.pid, signal.SIGKILL if number % 2 else signal.SIGINT)
        process.communicate(timeout=60)
        assert gateway.agent("status")["version"] in (before, f"0.3.{number}")
        result = flash(lab)["gw-1"]
        assert result["version"] == f"0.3.{number}", result
        assert joined(gateway, f"0.3.{number}")
