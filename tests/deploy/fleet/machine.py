"""A gateway with systemd as its first process, in namespaces of its own over this machine's root.

What it writes goes into a layer in memory that outlives a power cut. The network is this machine's.
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.fleet.lab import SSHD, SSHD_CONFIG, Gateway
from tests.waiting import until_seen

SYSTEMD = "/lib/systemd/systemd"

HOLD = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs {disk}
mkdir {disk}/upper {disk}/work {disk}/root
echo ready
exec sleep infinity
"""

BOOT = """
set -e
root={disk}/root
mount -t overlay overlay -o lowerdir=/,upperdir={disk}/upper,workdir={disk}/work $root
mount -t proc proc $root/proc
mount -t sysfs sysfs $root/sys
mount -t cgroup2 cgroup2 $root/sys/fs/cgroup
mount -t tmpfs tmpfs $root/run -o mode=755
mount --rbind /dev $root/dev
if [ ! -e {disk}/upper/installed ]; then
  rm -rf $root/etc/systemd/system/*.wants
  for unit in systemd-udevd systemd-logind systemd-networkd systemd-resolved systemd-timesyncd; do
    ln -sf /dev/null $root/etc/systemd/system/$unit.service
  done
  mkdir -p $root/etc/systemd/system/multi-user.target.wants
  ln -s ../gateway-ssh.service $root/etc/systemd/system/multi-user.target.wants/
  cp -r {folder}/etc $root/etc/gateway
  cp {folder}/etc/ssh.unit $root/etc/systemd/system/gateway-ssh.service
  ln -sf /lib/systemd/system/multi-user.target $root/etc/systemd/system/default.target
  touch $root/installed
fi
cd $root
mkdir -p old
pivot_root . old
umount -l /old
export container=headwater-test
exec {systemd} --log-target=null --show-status=no
"""

SSH_UNIT = """\
[Service]
ExecStartPre=/bin/mkdir -p /run/sshd
ExecStart={sshd} -D -e -f /etc/gateway/sshd_config
[Install]
WantedBy=multi-user.target
"""


def _boots() -> bool:
    """Whether namespaces, cgroups and overlays can be had here."""
    if os.geteuid() or not os.path.exists(SYSTEMD) or shutil.which("nsenter") is None:
        return False
    tried = (
        "mount -t tmpfs t /mnt && mkdir /mnt/u /mnt/w /mnt/r && "
        "mount -t overlay o -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/r && "
        "mount -t sysfs s /mnt/r/sys && mount -t cgroup2 c /mnt/r/sys/fs/cgroup"
    )
    words = ["unshare", "-m", "-p", "-u", "-i", "-f", "sh", "-c", tried]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def skip_unless_it_boots() -> None:
    """Skip the test that is about to boot a machine, where none can. The probe makes namespaces, so
    a fixture asks, not the collection."""
    if not _boots():
        pytest.skip("systemd, and root that may make namespaces, are needed")


class Machine(Gateway):
    """A gateway that boots. `start` boots it, `power_cut` ends it; what it wrote stays."""

    def __init__(self, folder: Path, name: str, authorized: Path) -> None:
        super().__init__(folder, name, authorized)
        self.prefix, self.data = Path("/opt/headwater"), Path("/var/lib/headwater")
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        self._put_ssh_aside(authorized)
        self._holder = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", HOLD.format(disk=self.disk)], stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n"

    def _put_ssh_aside(self, authorized: Path) -> None:
        """What its SSH server needs, where a boot that clears /tmp does not take it."""
        etc = self.folder / "etc"
        etc.mkdir()
        for path in (self.folder / "host_key", authorized):
            shutil.copy(path, etc)
        config = SSHD_CONFIG.format(
            port=self.port, folder="/etc/gateway", keys=f"/etc/gateway/{authorized.name}"
        )
        (etc / "sshd_config").write_text(config)
        (etc / "ssh.unit").write_text(SSH_UNIT.format(sshd=SSHD))

    def start(self) -> None:
        """Boot, and wait for its SSH server."""
        text = self.boot_script()
        words = ["nsenter", "-m", "-t", str(self._holder.pid), "unshare", "-m", "-p", "-u", "-i",
                 "-f", "--kill-child", "sh", "-c", text]  # fmt: skip
        self._process = subprocess.Popen(words)
        until_seen(self._listens, f"{self.name} boots", 60)

    def boot_script(self) -> str:
        """What a shell in new namespaces does to become the machine."""
        return BOOT.format(disk=self.disk, folder=self.folder, systemd=SYSTEMD)

    @property
    def first_pid(self) -> int:
        """Its first process, as this machine counts."""
        assert self._process is not None
        pid = self._process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def inside(self, *words: str, check: bool = True) -> str:
        """What a command on the machine prints."""
        where = ["nsenter", "-t", str(self.first_pid), "-m", "-p", "-u", "-i"]
        done = subprocess.run([*where, *words], capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def unit(self, name: str, prop: str) -> str:
        """A property of a unit, as systemd tells it."""
        return self.inside("systemctl", "show", "-P", prop, name).strip()

    def status(self) -> dict[str, Any]:
        """What the program on the gateway says."""
        return self._said(self.inside(*self.agent_words("status")))

    def stop(self) -> None:
        """Off, for ever."""
        self.power_cut()
        self._holder.kill()
        self._holder.wait()

    def power_cut(self) -> None:
        """Everything ends at once."""
        if self._process is not None:
            os.kill(self.first_pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
