"""Gateways on loopback: OpenSSH servers with host keys, roots and folders of their own."""

import base64
import hashlib
import io
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bench.servers import free_port
from headwater.deploy.fleet.bundling.bundler import Recipe, Target, build
from headwater.deploy.fleet.bundling.installed import write_wheels
from headwater.deploy.fleet.device.bundle_file import CONTEXT
from headwater.security.nkeys import KeyPair
from tests.waiting import until_seen

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
PYTHON = "/usr/bin/python3"
HAS_SSHD = os.path.exists(SSHD) and shutil.which("ssh-keygen") is not None
needs_sshd = pytest.mark.skipif(
    not HAS_SSHD or os.geteuid() != 0, reason="Debian's openssh-server and root are needed"
)

thorough = pytest.mark.skipif(
    not os.environ.get("HEADWATER_FLEET"), reason="takes minutes: make fleet"
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
        self.node_port = free_port()
        self.prefix = self.folder / "opt"
        self.data = self.folder / "data"
        self.host_key = make_key(self.folder / "host_key")
        self.more: dict[str, Any] = {}
        config = self.folder / "sshd_config"
        config.write_text(
            SSHD_CONFIG.format(port=self.port, folder=self.folder, keys=authorized)
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its node, for clients."""
        return f"nats://127.0.0.1:{self.node_port}"

    def also(self, line: str) -> None:
        """One more line of the SSH server's configuration, before it starts."""
        config = self.folder / "sshd_config"
        config.write_text(f"{line}\n{config.read_text()}")

    def replace(self, line: str, other: str) -> None:
        """Another line of the SSH server's configuration, before it starts."""
        config = self.folder / "sshd_config"
        config.write_text(config.read_text().replace(line, other))

    def pretend(self, command: str, script: str) -> None:
        """Let a command of the machine say something else."""
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        (folder / command).write_text(f"#!/bin/sh\n{script}\n")
        (folder / command).chmod(0o755)
        self.also(f"SetEnv PATH={folder}:/usr/sbin:/usr/bin:/sbin:/bin")

    def start(self) -> None:
        """Listen."""
        os.makedirs("/run/sshd", exist_ok=True)
        with (self.folder / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen(self.server_words(), stdout=log, stderr=log)
        until_seen(self._listens, what=f"sshd of {self.name}")

    def server_words(self) -> list[str]:
        """The command of its SSH server."""
        return [SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")]

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """Listen no more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def ssh_pid(self) -> int:
        """The SSH server that listens; its children are the sessions."""
        assert self._process is not None
        return self._process.pid

    def agent(self, verb: str) -> dict[str, Any]:
        """A verb of the program on the gateway."""
        done = subprocess.run(
            self.agent_words(verb), capture_output=True, text=True, check=False
        )
        return self._said(done.stdout)

    def agent_words(self, verb: str) -> list[str]:
        """The command of a verb of the program on the gateway."""
        prefix = str(self.prefix)
        return [f"{prefix}/python", f"{prefix}/agent.pyz", verb, "--prefix", prefix]

    @staticmethod
    def _said(output: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(output.splitlines()[-1])
        return dict(found.get("result", found))

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
        until_seen(lambda: not self.processes(), what="the power cut")

    def entry(self, **more: Any) -> str:
        """The gateway's table in an inventory."""
        fields = {
            "name": self.name, "address": "127.0.0.1", "port": self.port,
            "host_key": self.host_key, "prefix": str(self.prefix), "data": str(self.data),
            **self.more, **more,
        }  # fmt: skip
        lines = [f"{key} = {json.dumps(fields[key])}\n" for key in fields]
        return "".join(["[[host]]\n", *lines, f"vars = {{ port = {self.node_port} }}\n"])


Kind = TypeVar("Kind", bound=Gateway)


class Lab:
    """Gateways, the key that opens them, bundles, and an inventory."""

    def __init__(self, folder: Path, bundle: Path, bundle_key: KeyPair) -> None:
        self.folder = folder
        self.bundle = bundle
        self.bundle_key = bundle_key
        self.gateways: list[Gateway] = []
        authorized = folder / "authorized_keys"
        authorized.write_text(make_key(folder / "id") + "\n")
        self.authorized = authorized
        self.inventory = folder / "fleet.toml"

    def add(self, *names: str) -> list[Gateway]:
        """More gateways, listening."""
        made = [self.unstarted(name) for name in names]
        for gateway in made:
            gateway.start()
        return made

    def unstarted(self, name: str) -> Gateway:
        """One more, which does not listen yet."""
        return self.keep(Gateway(self.folder, name, self.authorized))

    def keep(self, made: "Kind") -> "Kind":
        """A gateway of the lab from now on."""
        self.gateways.append(made)
        return made

    def write(
        self, hub: str, *, bundle: Path | None = None, template: str = "", enrol: str = "",
        deadline: float = 60, fleet: str = "", hosts: str | None = None,
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


def variant(
    bundle: Path, key: KeyPair, version: str, edits: dict[str, str], **manifest: Any
) -> Path:
    """Another version of a bundle, in which some modules have another text."""
    out = bundle.with_name(f"headwater-{version}-{secrets.token_hex(4)}.bundle")
    with tarfile.open(bundle) as old, tarfile.open(out, "w:") as new:
        told = json.loads(_content(old, "manifest.json"))
        override = _override(edits)
        entry = {"path": "wheels/override.whl", "size": len(override),
                 "sha256": hashlib.sha256(override).hexdigest()}  # fmt: skip
        told.update(version=version, files=[*told["files"], entry], **manifest)
        raw = json.dumps(told).encode()
        signature = base64.b64encode(key.sign(CONTEXT + raw)).decode()
        signed = json.dumps({"key": key.public_key, "signature": signature}).encode()
        _put(new, "manifest.json", raw)
        _put(new, "manifest.sig", signed)
        for member in old:
            if not member.name.startswith("manifest."):
                _put(new, member.name, _content(old, member.name))
        _put(new, "wheels/override.whl", override)
    return out


def _override(edits: dict[str, str]) -> bytes:
    """A wheel that lies over the others; bytecode included, since that counts first."""
    out = io.BytesIO()
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(out, "w") as archive:
        for name, text in edits.items():
            path = Path(scratch) / Path(name).name
            path.write_text(text)
            words = [PYTHON, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
            subprocess.run([*words, str(path)], check=True)
            archive.writestr(name, text)
            (cached,) = (Path(scratch) / "__pycache__").glob(f"{path.stem}.*.pyc")
            archive.writestr(f"{Path(name).parent}/__pycache__/{cached.name}", cached.read_bytes())
        archive.writestr("override.txt", "so that no override is empty")
    return out.getvalue()


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    content = archive.extractfile(name)
    assert content is not None
    return content.read()


def _put(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))
