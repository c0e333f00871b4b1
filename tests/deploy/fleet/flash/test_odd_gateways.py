"""Gateways that are well but set up unlike others, and gateways that two flash at once."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.deploy.fleet.device.bundle_file import Bundle
from headwater.deploy.fleet.flash import links
from headwater.security.nkeys import KeyPair
from tests.deploy.fleet.flash.flashing import flash, fleet, inventory
from tests.deploy.fleet.lab import Gateway, Lab, needs_sshd
from tests.deploy.keys.hub_of_keys import Hub
from tests.waiting import until_seen

pytestmark = [needs_sshd, pytest.mark.timeout(240)]

ORIGINAL = '/bin/sh -c "$SSH_ORIGINAL_COMMAND"'


def chatty(gateway: Gateway) -> None:
    """Its shell greets whoever comes, and says more on its errors' side."""
    gateway.also(f"ForceCommand echo welcome; echo motd >&2; {ORIGINAL}")


def strict_umask(gateway: Gateway) -> None:
    """What is made there may be read by nobody else."""
    gateway.also(f"ForceCommand umask 077; {ORIGINAL}")


def one_session(gateway: Gateway) -> None:
    """It serves one session of a connection at a time."""
    gateway.also("MaxSessions 1")


def host_key_of(kind: str) -> Callable[[Gateway], None]:
    """Its host key is of another kind."""

    def change(gateway: Gateway) -> None:
        path = gateway.folder / kind
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", path], check=True)
        gateway.host_key = " ".join(path.with_suffix(".pub").read_text().split()[:2])
        gateway.replace(f"HostKey {gateway.folder}/host_key", f"HostKey {path}")

    change.__name__ = f"with_{kind}"
    return change


def behind_a_link(gateway: Gateway) -> None:
    """Its folders are on another disk, behind a link."""
    real = gateway.folder / "disk"
    real.mkdir()
    gateway.prefix.symlink_to(real)


def few_tools(gateway: Gateway) -> None:
    """Busybox-like: no bash, no useradd, no systemctl, only the plainest commands."""
    folder = gateway.folder / "bin"
    folder.mkdir()
    for name in ("sh", "awk", "cat", "chmod", "cut", "date", "df", "dirname", "find", "getconf",
                 "head", "id", "ln", "ls", "mkdir", "mv", "python3", "readlink", "rm", "sed",
                 "sha256sum", "tail", "tar", "touch", "uname", "wc"):  # fmt: skip
        (folder / name).symlink_to(str(shutil.which(name, path="/usr/bin:/bin")))
    gateway.also(f"SetEnv PATH={folder}")


ODD: list[Callable[[Gateway], None]] = [
    chatty, strict_umask, one_session, host_key_of("rsa"), host_key_of("ecdsa"), behind_a_link,
    few_tools,
]  # fmt: skip


def test_odd_gateways_are_flashed_and_looked_at(hub: Hub, lab: Lab) -> None:
    for spoil in ODD:
        gateway = lab.unstarted(spoil.__name__.replace("_", "-"))
        spoil(gateway)
        gateway.start()
    inventory(hub, lab)
    for state in ("changed", "unchanged"):
        for name, found in flash(lab).items():
            assert found["state"] == state, (name, found)
    for name, found in fleet(lab, "ls").items():
        assert found["version"], (name, found)


class DropbearGateway(Gateway):
    """A gateway with the SSH server of small systems."""

    def __init__(self, folder: Path, name: str, authorized: Path) -> None:
        super().__init__(folder, name, authorized)
        words = ["dropbearkey", "-t", "ed25519", "-f", str(self.folder / "dropbear_key")]
        said = subprocess.check_output(words, text=True, stderr=subprocess.DEVNULL)
        line = next(line for line in said.splitlines() if line.startswith("ssh-ed25519 "))
        self.host_key = " ".join(line.split()[:2])
        self._authorized = authorized

    def server_words(self) -> list[str]:
        """It reads keys from the home of who logs in only, so it gets a home of its own."""
        home = (
            "mount -t tmpfs -o mode=700 tmpfs /root && mkdir -m 700 /root/.ssh && "
            f"cp {self._authorized} /root/.ssh/authorized_keys && "
            f"exec dropbear -F -E -s -p 127.0.0.1:{self.port} -r {self.folder}/dropbear_key "
            f"-P {self.folder}/dropbear.pid"
        )
        return ["unshare", "-m", "--propagation", "private", "sh", "-c", home]


@pytest.mark.skipif(shutil.which("dropbear") is None, reason="Debian's dropbear-bin is needed")
def test_a_gateway_with_dropbear(hub: Hub, lab: Lab) -> None:
    lab.keep(DropbearGateway(lab.folder, "gw-1", lab.authorized)).start()
    inventory(hub, lab)
    assert flash(lab)["gw-1"]["state"] == "changed"
    assert flash(lab)["gw-1"]["state"] == "unchanged"


def test_two_flash_one_gateway_at_once(hub: Hub, lab: Lab) -> None:
    (gateway,) = lab.add("gw-1")
    inventory(hub, lab)
    words = [sys.executable, "-m", "headwater.deploy.main", "fleet", "flash", "-f",
             str(lab.inventory)]  # fmt: skip
    runs = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(3)
    ]
    said = [run.communicate(timeout=120)[0] for run in runs]
    assert 0 in [run.returncode for run in runs], said
    for run, text in zip(runs, said, strict=True):
        assert run.returncode == 0 or "another flash" in text, text
    assert gateway.agent("status")["node"]["joined"]
    assert flash(lab)["gw-1"]["state"] == "unchanged"


@pytest.mark.parametrize("grows", [False, True])
def test_what_an_earlier_upload_left_behind(
    grows: bool, hub: Hub, lab: Lab, bundle: tuple[Path, KeyPair], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder of the file that moves is another run; one that does not has lost its other end."""
    monkeypatch.setattr(links, "HOLDER_S", 1)
    (gateway,) = lab.add("gw-1")
    inventory(hub, lab)
    incoming = gateway.prefix / "incoming"
    incoming.mkdir(parents=True)
    part = incoming / f"{digest_of(bundle)}.part"
    goes = "while :; do echo more >&9; sleep 0.1; done" if grows else "sleep 600"
    holder = ["flock", str(part), "sh", "-c", f"echo x >> {part}; exec 9>>{part}; {goes}"]
    with subprocess.Popen(holder, start_new_session=True) as process:
        try:
            until_seen(lambda: part.exists() and part.stat().st_size > 0, "the other upload")
            found = flash(lab, status=1 if grows else 0)["gw-1"]
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    if grows:
        assert "another flash of this gateway is uploading" in found["error"], found
    else:
        assert (found["state"], found["error"]) == ("changed", ""), found


def digest_of(bundle: tuple[Path, KeyPair]) -> str:
    """The name that a bundle has on its way."""
    opened = Bundle(bundle[0], [bundle[1].public_key])
    opened.close()
    return opened.digest
