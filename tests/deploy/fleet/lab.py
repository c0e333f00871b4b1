"""Gateways on loopback: OpenSSH servers with host keys, roots and folders of their own."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.servers import free_port
from headwater.deploy.fleet.bundling.bundler import Recipe, Target, build
from headwater.deploy.fleet.bundling.installed import write_wheels
from headwater.security.nkeys import KeyPair

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
PYTHON = "/usr/bin/python3"
HAS_SSHD = os.path.exists(SSHD) and shutil.which("ssh-keygen") is not None
needs_sshd = pytest.mark.skipif(
    not HAS_SSHD or os.geteuid() != 0, reason="Debian's openssh-server and root are needed"
)

SSHD_CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
PidFile {folder}/sshd.pid
AuthorizedKeysFile {keys}
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 200
LogLevel ERROR
"""


def until(true: Callable[[], Any], seconds: float = 20.0, what: str = "") -> Any:
    """What `true` returns once that is something. Fails after a while."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)
    return found


def make_key(path: Path) -> str:
    """An SSH key pair in a file; returns the public half."""
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(words, check=True)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


class Gateway:
    """One machine, as far as loopback gives one."""

    def __init__(self, folder: Path, name: str, authorized: Path) -> None:
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self.port = free_port()
        self.prefix = self.folder / "opt"
        self.data = self.folder / "data"
        self.host_key = make_key(self.folder / "host_key")
        config = self.folder / "sshd_config"
        config.write_text(
            SSHD_CONFIG.format(port=self.port, folder=self.folder, keys=authorized)
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Listen."""
        os.makedirs("/run/sshd", exist_ok=True)
        words = [SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")]
        self._process = subprocess.Popen(words, stderr=(self.folder / "sshd.log").open("ab"))
        until(self._listens, what=f"sshd of {self.name}")

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """Listen no more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def agent(self, verb: str) -> dict[str, Any]:
        """A verb of the program on the gateway."""
        done = subprocess.run(
            [self.prefix / "python", self.prefix / "agent.pyz", verb, "--prefix", self.prefix],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found.get("result", found)

    def processes(self) -> list[int]:
        """Everything that runs out of the gateway's folder."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    words = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if str(self.prefix).encode() in words:
                    found.append(int(entry.name))
        return found

    def power_cut(self) -> None:
        """Everything ends at once."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        until(lambda: not self.processes(), what="the power cut")

    def entry(self, **more: Any) -> str:
        """The gateway's table in an inventory."""
        fields = {
            "name": self.name, "address": "127.0.0.1", "port": self.port,
            "host_key": self.host_key, "prefix": str(self.prefix), "data": str(self.data), **more,
        }  # fmt: skip
        return "[[host]]\n" + "".join(f"{key} = {json.dumps(fields[key])}\n" for key in fields)


class Lab:
    """Gateways, the key that opens them, bundles, and an inventory."""

    def __init__(self, folder: Path, bundle: Path, bundle_key: KeyPair) -> None:
        self.folder = folder
        self.bundle = bundle
        self.bundle_key = bundle_key
        self.gateways: list[Gateway] = []
        authorized = folder / "authorized_keys"
        authorized.write_text(make_key(folder / "id") + "\n")
        self._authorized = authorized
        self.inventory = folder / "fleet.toml"

    def add(self, *names: str) -> list[Gateway]:
        """More gateways, listening."""
        made = [Gateway(self.folder, name, self._authorized) for name in names]
        for gateway in made:
            gateway.start()
        self.gateways += made
        return made

    def write(
        self, hub: str, *, bundle: Path | None = None, template: str = "", enrol: str = "",
        deadline: float = 15, fleet: str = "", hosts: str | None = None,
    ) -> None:  # fmt: skip
        """The inventory."""
        text = (
            f'[fleet]\nname = "plant"\nhub = ["{hub}"]\n'
            f'bundle = "{bundle or self.bundle}"\n'
            f'bundle_key = "{self.bundle_key.public_key}"\n{fleet}\n'
            f'[defaults]\nuser = "root"\nkey = "{self.folder / "id"}"\nagent = false\n'
            f'service = "supervisor"\nrun_as = "nobody"\ndeadline = {deadline}\n'
        )
        if template:
            (self.folder / "edge.conf.tmpl").write_text(template)
            text += '[template]\nconfig = "edge.conf.tmpl"\n'
        if enrol:
            text += f'[enrol]\ntokens = "{enrol}"\n'
        if hosts is None:
            hosts = "".join(gateway.entry() for gateway in self.gateways)
        self.inventory.write_text(text + hosts)

    def close(self) -> None:
        """End everything."""
        for gateway in self.gateways:
            gateway.stop()
            gateway.power_cut()


def make_bundle(folder: Path, key: KeyPair) -> Path:
    """A bundle of what is installed here, for the system's Python."""
    wheels = folder / "wheels"
    wheels.mkdir()
    return build(Recipe(system_target(), write_wheels(wheels), key), folder)


def system_target() -> Target:
    """This machine with its own Python."""
    words = [PYTHON, "-c", "import platform as p; print(p.machine(), *p.python_version_tuple())"]
    machine, major, minor, *_ = subprocess.check_output(words, text=True).split()
    return Target(machine, f"{major}.{minor}")
