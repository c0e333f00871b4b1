"""Gateways that are broken in every way, and bundles that are: each is told, none stops another."""

import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater.deploy.cli import cli
from headwater.deploy.fleet.flash import host_run, links
from headwater.security.nkeys import KeyPair
from tests.deploy.fleet.flash.flashing import flash, inventory
from tests.deploy.fleet.lab import Gateway, Lab, make_key, needs_sshd, variant
from tests.deploy.keys.hub_of_keys import Hub

pytestmark = [needs_sshd, pytest.mark.timeout(240)]

SHORT_S = 20.0


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def other_key(lab: Lab, gateway: Gateway) -> None:
    """The inventory has another host key."""
    gateway.host_key = make_key(lab.folder / f"{gateway.name}-other")
    gateway.start()


def refused(lab: Lab, gateway: Gateway) -> None:
    """Nobody's key is let in."""
    gateway.also("AuthorizedKeysFile none")
    gateway.start()


def hangs(lab: Lab, gateway: Gateway) -> None:
    """Whoever logs in gets no shell."""
    gateway.also("ForceCommand sleep 60")
    gateway.start()


def no_key(lab: Lab, gateway: Gateway) -> None:
    """The inventory names a key that is not there."""
    gateway.more["key"] = "gone"
    gateway.start()


def locked_key(lab: Lab, gateway: Gateway) -> None:
    """The key has a passphrase."""
    path = lab.folder / "locked"
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "some words", "-f", str(path)]
    subprocess.run(words, check=True)
    gateway.more["key"] = str(path)
    gateway.start()


def dead(lab: Lab, gateway: Gateway) -> None:
    """Nothing listens."""


def read_only(lab: Lab, gateway: Gateway) -> None:
    """Its root cannot be written."""
    gateway.prefix = Path("/sys/headwater")
    gateway.start()


def full(lab: Lab, gateway: Gateway) -> None:
    """There is room for a few kilobytes."""
    gateway.pretend("df", "echo head; echo /dev/x 100000 99000 1000 99% /")
    gateway.start()


def in_1970(lab: Lab, gateway: Gateway) -> None:
    """It has never learned the time."""
    gateway.pretend("date", "echo 4711")
    gateway.start()


def other_machine(lab: Lab, gateway: Gateway) -> None:
    """It is of another kind."""
    gateway.pretend("uname", 'if [ "$1" = -m ]; then echo armv7l; else echo Linux; fi')
    gateway.start()


BROKEN: dict[Callable[[Lab, Gateway], None], tuple[str, str, str]] = {
    other_key: ("unreachable", "connect", "not the one that is pinned"),
    refused: ("unreachable", "connect", "does not let root in"),
    hangs: ("unreachable", "facts", "answers nothing within"),
    no_key: ("unreachable", "connect", "gone, which is not there"),
    locked_key: ("unreachable", "connect", "is used by an SSH agent"),
    dead: ("unreachable", "connect", "cannot connect"),
    read_only: ("failed", "plan", "cannot be written"),
    full: ("failed", "plan", "no space"),
    in_1970: ("failed", "plan", "days off"),
    other_machine: ("failed", "plan", "no bundle for armv7l"),
}


def test_broken_gateways_stop_no_other(
    hub: Hub, lab: Lab, silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "CONNECT_S", SHORT_S)
    monkeypatch.setattr(host_run, "FACTS_S", SHORT_S)
    lab.add("gw-good")
    for spoil in BROKEN:
        spoil(lab, lab.unstarted(spoil.__name__))
    lab.unstarted("silent").port = silent_port
    inventory(hub, lab)
    results = flash(lab, status=4)
    assert results["gw-good"]["state"] == "changed", results["gw-good"]
    for spoil, (state, phase, text) in BROKEN.items():
        found = results[spoil.__name__]
        assert (found["state"], found["phase"]) == (state, phase), found
        assert text in found["error"], found
    assert results["silent"]["state"] == "unreachable"
    names = {spoil.__name__ for spoil in BROKEN} | {"silent"}
    again = flash(lab, "--limit", "@failed", "--limit", "gw-g*", "--dry-run", status=4)
    assert set(again) == names | {"gw-good"}
    assert again["gw-good"]["state"] == "unchanged"


def test_an_unknown_host_key_is_refused_or_remembered(hub: Hub, lab: Lab) -> None:
    (gateway,) = lab.add("gw-1")
    gateway.host_key = ""
    inventory(hub, lab)
    assert "host_key" in flash(lab, "--dry-run", status=1)["gw-1"]["error"]
    flash(lab, "--dry-run", "--accept-new")
    flash(lab, "--dry-run")
    known = lab.inventory.with_name("fleet.toml.known_hosts")
    known.write_text(known.read_text().replace(known.read_text().split()[-1],
                                               make_key(lab.folder / "x").split()[-1]))  # fmt: skip
    assert "pinned" in flash(lab, "--dry-run", status=1)["gw-1"]["error"]


def test_damaged_and_foreign_bundles_never_travel(
    hub: Hub, lab: Lab, bundle: tuple[Path, KeyPair]
) -> None:
    lab.add("gw-1")
    foreign = variant(bundle[0], KeyPair.create("O"), "6.6.6", {})
    cut = lab.folder / "cut.bundle"
    cut.write_bytes(bundle[0].read_bytes()[: bundle[0].stat().st_size // 2])
    for path, text in ((foreign, "not among the keys"), (cut, "bundle")):
        inventory(hub, lab, bundle=path)
        done = CliRunner().invoke(cli, ["fleet", "flash", "-f", str(lab.inventory)])
        assert done.exit_code == 1
        assert text in done.output
    assert not lab.gateways[0].prefix.exists()


def test_a_wrong_inventory_says_everything_at_once(lab: Lab) -> None:
    lab.write("tls://hub:7422", hosts='[[host]]\nname = "GW"\nadress = "x"\nport = 0\n')
    done = CliRunner().invoke(cli, ["fleet", "flash", "-f", str(lab.inventory)])
    assert done.exit_code == 2
    assert "did you mean address?" in done.output
    wrong = 'name = "GW"\nport = 0\nservice = "x"\njump = "a b"\n'
    lab.write("tls://hub:7422", hosts=f"[[host]]\n{wrong}")
    done = CliRunner().invoke(cli, ["fleet", "flash", "-f", str(lab.inventory)])
    assert done.exit_code == 2
    for text in ("no name of a gateway", "no port", "systemd or supervisor", "jump is"):
        assert text in done.output
    same = 'address = "10.0.0.1"\n'
    wrong = 'unit = "../x"\nrun_as = "a b"\ndeadline = 0\n'
    hosts = f'[[host]]\nname = "gw-1"\n{same}{wrong}[[host]]\nname = "gw-2"\n{same}'
    lab.write("tls://hub:7422", hosts=hosts, fleet='ca = "gone.pem"')
    done = CliRunner().invoke(cli, ["fleet", "flash", "-f", str(lab.inventory)])
    assert done.exit_code == 2
    for text in ("unit is a plain word", "run_as is a plain word", "deadline is 1 to", "gone.pem",
                 "gw-2: gw-1 has the same address"):  # fmt: skip
        assert text in done.output
