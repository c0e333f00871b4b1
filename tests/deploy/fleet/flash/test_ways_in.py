"""The ways to a gateway: through another host, by an agent's keys, as somebody who is not root."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.fleet.flash.flashing import EDGE, flash, fleet, inventory
from tests.deploy.fleet.lab import Gateway, Lab, make_key, needs_sshd
from tests.deploy.keys.hub_of_keys import Hub

pytestmark = [needs_sshd, pytest.mark.timeout(240)]

HUB = "nats://127.0.0.1:7422"
"""Nobody is asked: these runs end with the plan."""


@pytest.fixture
def pair(lab: Lab) -> tuple[Gateway, Gateway]:
    """A host on the way, and the gateway behind it that it may connect to."""
    jump, behind = lab.unstarted("jump"), lab.unstarted("behind")
    jump.also(f"PermitOpen 127.0.0.1:{behind.port}")
    jump.start()
    behind.start()
    return jump, behind


def through(lab: Lab, jump: Gateway, behind: Gateway, **more: object) -> None:
    """An inventory with the gateway only, by way of the other host."""
    way = {"jump": f"root@127.0.0.1:{jump.port}", "jump_host_key": jump.host_key, **more}
    lab.write(HUB, template=EDGE, hosts=behind.entry(**way))


def planned(lab: Lab, *more: str, status: int = 0) -> str:
    """What a dry run of the gateway "behind" ends with: its state, or its error."""
    found = flash(lab, "--dry-run", *more, status=status)["behind"]
    return str(found["error"] or found["state"])


def test_a_host_on_the_way_is_passed_and_has_to_prove_itself(
    lab: Lab, pair: tuple[Gateway, Gateway], tmp_path: Path
) -> None:
    jump, behind = pair
    through(lab, jump, behind)
    assert planned(lab) == "planned"
    assert fleet(lab, "ls", status=3)["behind"]["state"] == "not flashed"
    through(lab, jump, behind, jump_host_key="")
    assert "no jump_host_key for 127.0.0.1" in planned(lab, status=1)
    through(lab, jump, behind, jump_host_key=make_key(tmp_path / "other"))
    assert "127.0.0.1 on the way: its host key is not" in planned(lab, status=1)
    through(lab, jump, behind, jump_host_key="ssh-ed25519 no key")
    assert "jump_host_key in the inventory is no key" in planned(lab, status=1)
    through(lab, jump, behind, host_key=jump.host_key)
    assert "not the one that is pinned" in planned(lab, status=1)


def test_a_key_is_learned_through_the_host_on_the_way(
    lab: Lab, pair: tuple[Gateway, Gateway]
) -> None:
    jump, behind = pair
    through(lab, jump, behind, host_key="")
    assert "host_key" in planned(lab, status=1)
    assert planned(lab, "--accept-new") == "planned"
    assert planned(lab) == "planned"


def test_what_the_host_on_the_way_forbids_is_told(lab: Lab) -> None:
    jump, behind = lab.unstarted("jump"), lab.unstarted("behind")
    jump.also("AllowTcpForwarding no")
    jump.start()
    behind.start()
    through(lab, jump, behind)
    assert "cannot connect" in planned(lab, status=1)
    jump.stop()
    assert "127.0.0.1 on the way: cannot connect" in planned(lab, status=1)


@pytest.fixture
def ssh_agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An agent without keys, as `SSH_AUTH_SOCK` names it."""
    said = subprocess.check_output(["ssh-agent", "-s"], text=True)
    found = dict(re.findall(r"(SSH_\w+)=([^;]+);", said))
    monkeypatch.setenv("SSH_AUTH_SOCK", found["SSH_AUTH_SOCK"])
    yield
    subprocess.run(
        ["ssh-agent", "-k"], check=True, capture_output=True, env={**os.environ, **found}
    )


def test_the_keys_of_an_agent_open_gateways(lab: Lab, ssh_agent: None) -> None:
    (gateway,) = lab.add("behind")
    lab.write(HUB, template=EDGE, hosts=gateway.entry(key="", agent=True))
    assert "does not let root in" in planned(lab, status=1)
    subprocess.run(["ssh-add", "-q", str(lab.folder / "id")], check=True)
    assert planned(lab) == "planned"
    lab.write(HUB, template=EDGE, hosts=gateway.entry(key="", agent=False))
    assert "does not let root in" in planned(lab, status=1)


def test_who_is_not_root_works_by_sudo(hub: Hub, lab: Lab) -> None:
    """The machine's `sudo` is a script that keeps what it was asked for."""
    gateway = lab.unstarted("behind")
    asked = gateway.folder / "asked"
    gateway.pretend("sudo", f'[ "$1" = -n ] || exit 9; shift; echo x >> {asked}; exec "$@"')
    gateway.start()
    inventory(hub, lab, hosts=gateway.entry(sudo=True))
    result = flash(lab)["behind"]
    assert result["state"] == "changed", result
    assert len(asked.read_text().split()) >= 5
    gateway.pretend("sudo", "echo 'sudo: a password is required' >&2; exit 1")
    assert "a password is required" in flash(lab, status=1)["behind"]["error"]
