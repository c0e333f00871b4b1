"""A gateway of another architecture: its own Debian in an emulator, over what `make arm64` made.

`python -m tests.deploy.fleet.foreign` makes it, out of a mirror of Debian and a package registry.
The kernel runs its programs through qemu (binfmt_misc), so that all of it is of that architecture:
SSH server, shell, Python, and what the bundle brings.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.security.nkeys import KeyPair
from tests.deploy.fleet.machine import Machine

ROOT = Path(__file__).resolve().parents[3]
MADE = ROOT / "build/arm64"
"""Holds `root`, a bundle, and `bundle.key`."""
SYSTEM = MADE / "root"
ARCHITECTURE = "aarch64"
PYTHON = "3.11"
"""Of Debian 12."""
SUITE = "bookworm"
PACKAGES = "python3,openssh-server,ca-certificates,procps"
EMULATION = Path("/proc/sys/fs/binfmt_misc")
RULES = Path("/usr/lib/binfmt.d/qemu-aarch64.conf")
"""Of qemu-user-static; systemd-binfmt registers it on machines that booted with systemd."""

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


def skip_unless_it_runs() -> None:
    """Skip the test that is about to boot one, where none can."""
    words = ["chroot", str(SYSTEM), "/usr/bin/uname", "-m"]
    tried = subprocess.run(words, capture_output=True, text=True, check=False)
    if tried.stdout.strip() != ARCHITECTURE:
        pytest.skip("make arm64 prepares an emulated gateway (root, qemu-user-static)")


def prepared_bundle() -> tuple[Path, KeyPair]:
    """The bundle for it, and the key that has signed it."""
    (bundle,) = MADE.glob(f"headwater-*-{ARCHITECTURE}-cp*.bundle")
    return bundle, KeyPair.from_seed((MADE / "bundle.key").read_text().strip())


class ForeignMachine(Machine):
    """As `Machine`, without systemd."""

    def boot_script(self) -> str:
        """Its root is the other architecture's."""
        return BOOT.format(disk=self.disk, folder=self.folder, system=SYSTEM)


def prepare() -> None:
    """Make what is missing: a root, Headwater's wheel, and a bundle. Ends the program when it
    cannot."""
    needed = {"debootstrap": "debootstrap", "qemu-aarch64-static": "qemu-user-static"}
    for tool, package in needed.items():
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is missing; install {package} (Debian: apt-get install)")
    _register()
    MADE.mkdir(parents=True, exist_ok=True)
    if not (SYSTEM / "usr/sbin/sshd").exists():
        shutil.rmtree(SYSTEM, ignore_errors=True)
        words = ["debootstrap", "--arch=arm64", "--variant=minbase", f"--include={PACKAGES}"]
        subprocess.check_call([*words, SUITE, str(SYSTEM)])
    wheels = MADE / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    build = [sys.executable, str(ROOT / "wheels.py"), ARCHITECTURE, PYTHON, str(wheels)]
    subprocess.check_call(build, cwd=ROOT)
    headwater = [str(Path(sys.executable).with_name("headwater")), "fleet"]
    key = MADE / "bundle.key"
    if not key.exists():
        subprocess.check_call([*headwater, "key", "--output", str(key)])
    for old in MADE.glob("*.bundle"):
        old.unlink()
    target = ["--machine", ARCHITECTURE, "--python", PYTHON, "--wheel", str(wheels)]
    where = ["--key", str(key), "--output", str(MADE)]
    subprocess.check_call([*headwater, "bundle", *where, *target])


def _register() -> None:
    """Let the kernel run programs of the architecture."""
    if not (EMULATION / "register").exists():
        subprocess.check_call(["mount", "-t", "binfmt_misc", "none", str(EMULATION)])
    if not (EMULATION / RULES.stem).exists():
        (EMULATION / "register").write_text(RULES.read_text())


if __name__ == "__main__":
    if os.geteuid():
        raise SystemExit("this needs root")
    prepare()
