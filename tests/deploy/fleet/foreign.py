"""Gateways that are not like this machine, with a Debian of their own each.

`python -m tests.deploy.fleet.foreign NAME` makes one (`make arm64`, `make python314`), out of a
mirror of Debian and a package registry. Of a machine of another architecture the kernel runs the
programs through qemu (binfmt_misc), so that all of it is of that architecture: SSH server, shell,
Python, and what the bundle brings.
"""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from headwater.security.nkeys import KeyPair
from tests.deploy.fleet.machine import Machine

ROOT = Path(__file__).resolve().parents[3]
EMULATION = Path("/proc/sys/fs/binfmt_misc")
RULES = Path("/usr/lib/binfmt.d/qemu-aarch64.conf")
"""Of qemu-user-static; systemd-binfmt registers it on machines that booted with systemd."""
SOURCE = "src"
"""In a root that compiles: the tree of Headwater."""


class System(NamedTuple):
    """A kind of machine."""

    name: str
    architecture: str
    debian: str
    suite: str
    python: str
    """That of the suite."""
    packages: str

    @property
    def made(self) -> Path:
        """Holds `root`, a bundle, and `bundle.key`."""
        return ROOT / "build" / self.name

    @property
    def root(self) -> Path:
        """Its file system, before anything is written there."""
        return self.made / "root"

    @property
    def compiles(self) -> bool:
        """Whether Headwater's wheel is compiled there: it has a Python that is not here."""
        return self.architecture == platform.machine()

    def skip_unless_it_runs(self) -> None:
        """Skip the test that is about to boot one, where none can."""
        words = ["chroot", str(self.root), "/usr/bin/uname", "-m"]
        tried = subprocess.run(words, capture_output=True, text=True, check=False)
        if tried.stdout.strip() != self.architecture:
            pytest.skip(f"make {self.name} prepares this gateway (root, debootstrap)")

    def bundle(self) -> tuple[Path, KeyPair]:
        """The bundle for it, and the key that has signed it."""
        (bundle,) = self.made.glob(f"headwater-*-{self.architecture}-cp*.bundle")
        return bundle, KeyPair.from_seed((self.made / "bundle.key").read_text().strip())


BASE = "python3,openssh-server,ca-certificates,procps"
SYSTEMS = {
    system.name: system
    for system in (
        System("arm64", "aarch64", "arm64", "bookworm", "3.11", BASE),
        System("python314", "x86_64", "amd64", "sid", "3.14",
               f"{BASE},python3-dev,python3-venv,gcc,libc6-dev"),
    )
}  # fmt: skip

BOOT = """
set -e
root={disk}/root
mount -t overlay overlay -o lowerdir={system},upperdir={disk}/upper,workdir={disk}/work $root
mount -t proc proc $root/proc
mount -t tmpfs tmpfs $root/run -o mode=755
mkdir $root/run/sshd
mount --rbind /dev $root/dev
mkdir -p $root/etc/gateway
cp -r {folder}/etc/. $root/etc/gateway
cd $root
mkdir -p old
pivot_root . old
umount -l /old
exec /bin/sh -c '/usr/sbin/sshd -D -e -f /etc/gateway/sshd_config & wait; while :; do sleep 1; done'
"""


class ForeignMachine(Machine):
    """As `Machine`, without systemd."""

    system: System

    def boot_script(self) -> str:
        """Its root is that of another system."""
        return BOOT.format(disk=self.disk, folder=self.folder, system=self.system.root)


def prepare(system: System) -> None:
    """Make what is missing: a root, Headwater's wheel, and a bundle. Ends the program when it
    cannot."""
    needed = {"debootstrap": "debootstrap"}
    if not system.compiles:
        needed["qemu-aarch64-static"] = "qemu-user-static"
    for tool, package in needed.items():
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is missing; install {package} (Debian: apt-get install)")
    if not system.compiles:
        _register()
    system.made.mkdir(parents=True, exist_ok=True)
    if not (system.root / "usr/sbin/sshd").exists():
        shutil.rmtree(system.root, ignore_errors=True)
        words = ["debootstrap", f"--arch={system.debian}", "--variant=minbase"]
        words += [f"--include={system.packages}", system.suite, str(system.root)]
        subprocess.check_call(words)
    wheels = system.made / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    if system.compiles:
        _compile_there(system, wheels)
    else:
        build = [sys.executable, str(ROOT / "wheels.py"), system.architecture, system.python]
        subprocess.check_call([*build, str(wheels)], cwd=ROOT)
    headwater = [str(Path(sys.executable).with_name("headwater")), "fleet"]
    key = system.made / "bundle.key"
    if not key.exists():
        subprocess.check_call([*headwater, "key", "--output", str(key)])
    for old in system.made.glob("*.bundle"):
        old.unlink()
    target = ["--machine", system.architecture, "--python", system.python, "--wheel", str(wheels)]
    where = ["--key", str(key), "--output", str(system.made)]
    subprocess.check_call([*headwater, "bundle", *where, *target])


def _compile_there(system: System, wheels: Path) -> None:
    """Have the machine's own Python and compiler make the wheel; pip runs here."""
    source = system.root / SOURCE
    shutil.rmtree(source, ignore_errors=True)
    subprocess.check_call(["git", "clone", "-q", str(ROOT), str(source)])
    tools = source / "tools"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(tools)]
    pip += ["--only-binary", ":all:", "--python-version", system.python]
    pins = ["-c", str(ROOT / "constraints.txt")]
    subprocess.check_call([*pip, *pins, "setuptools", "wheel", "Cython"])
    there = ["chroot", str(system.root), "/usr/bin/env", f"PYTHONPATH=/{SOURCE}/tools", "python3"]
    what = [f"/{SOURCE}/wheels.py", system.architecture, system.python, "/made"]
    subprocess.check_call([*there, *what])
    shutil.rmtree(wheels, ignore_errors=True)
    shutil.move(system.root / "made", wheels)
    shutil.rmtree(source)


def _register() -> None:
    """Let the kernel run programs of the architecture."""
    if not (EMULATION / "register").exists():
        subprocess.check_call(["mount", "-t", "binfmt_misc", "none", str(EMULATION)])
    if not (EMULATION / RULES.stem).exists():
        (EMULATION / "register").write_text(RULES.read_text())


if __name__ == "__main__":
    if os.geteuid():
        raise SystemExit("this needs root")
    prepare(SYSTEMS[sys.argv[1]])
