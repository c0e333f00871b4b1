"""How the node of a gateway is run: by systemd where it is, or by a small supervisor."""

import os
import pwd
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from headwater.deploy.fleet.device.places import DeviceError, Places, write_whole

STOP_S = 30.0
UNIT_FOLDER = Path("/etc/systemd/system")
START_LIMIT = 10

NODE_UNIT = """\
[Unit]
Description=Headwater edge node {name}
After=network.target
StartLimitIntervalSec=600
StartLimitBurst={burst}

[Service]
Type=notify
User={user}
ExecStartPre=+{python} {agent} before-start --prefix {prefix}
ExecStart={prefix}/current/bin/headwater serve -c {prefix}/current/edge.conf
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=2
WatchdogSec=30
TimeoutStartSec=90
TimeoutStopSec=60
LimitNOFILE=65536
WorkingDirectory={data}
ReadWritePaths={data}
CapabilityBoundingSet=
AmbientCapabilities=
LockPersonality=yes
NoNewPrivileges=yes
PrivateDevices=yes
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHome=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProtectSystem=strict
RemoveIPC=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
UMask=0077

[Install]
WantedBy=multi-user.target
"""

GUARD_UNIT = """\
[Unit]
Description=Watches a new version of Headwater on trial ({name})
After={unit}

[Service]
Type=simple
ExecStart={python} {agent} guard --prefix {prefix}
Restart=on-failure
RestartSec=5

[Install]
WantedBy=multi-user.target
"""

INIT_SCRIPT = """\
#!/bin/sh
### BEGIN INIT INFO
# Provides:          {unit}
# Required-Start:    $local_fs
# Required-Stop:     $local_fs
# Default-Start:     2 3 4 5
# Default-Stop:      0 1 6
# Short-Description: Headwater edge node {name}
### END INIT INFO
exec {python} {agent} "${{1:-start}}" --prefix {prefix}
"""


def unit_name(settings: dict[str, Any]) -> str:
    """Name of the service, without its suffix."""
    return str(settings.get("unit") or "headwater")


def node_command(places: Places) -> list[str]:
    """What runs the node of the current slot."""
    return [
        str(places.current / "bin/headwater"), "serve", "-c", str(places.current / "edge.conf"),
    ]  # fmt: skip


def prepare_user(settings: dict[str, Any]) -> None:
    """Make the system user that the node runs as, unless it is there. Raises DeviceError."""
    user = settings.get("run_as") or ""
    if not user or os.geteuid():
        return
    try:
        pwd.getpwnam(user)
        return
    except KeyError:
        pass
    for words in (
        ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", user],
        ["adduser", "-S", "-D", "-H", "-s", "/sbin/nologin", user],
    ):
        if shutil.which(words[0]):
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return
    raise DeviceError(f"user {user} is not there and cannot be made; make it, or set run_as")


def owner(settings: dict[str, Any]) -> tuple[int, int]:
    """User and group of the node. Raises DeviceError."""
    user = settings.get("run_as") or ""
    if not user or os.geteuid():
        return os.geteuid(), os.getegid()
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise DeviceError(f"user {user} is not there; make it, or set run_as") from None
    return found.pw_uid, found.pw_gid


def as_node(settings: dict[str, Any]) -> dict[str, Any]:
    """Arguments of subprocess by which a program runs as the node does."""
    if os.geteuid():
        return {}
    user, group = owner(settings)
    return {"user": user, "group": group, "extra_groups": []}


def give(path: Path, settings: dict[str, Any], mode: int = 0o700) -> None:
    """Make a folder that belongs to the node."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(path, *owner(settings))


class Systemd:
    """The node as a unit, and the guard as another one."""

    def __init__(self, places: Places, settings: dict[str, Any]) -> None:
        self.places = places
        self.settings = settings
        self.unit = f"{unit_name(settings)}.service"
        self.guard = f"{unit_name(settings)}-guard.service"

    def install(self) -> None:
        """Write the units, if they are others than before. Raises DeviceError."""
        words = {
            "name": self.settings["name"], "user": self.settings.get("run_as") or "root",
            "python": self.places.python, "agent": self.places.agent, "unit": self.unit,
            "prefix": self.places.prefix, "data": self.settings["data"], "burst": START_LIMIT,
        }  # fmt: skip
        changed = False
        for name, text in ((self.unit, NODE_UNIT), (self.guard, GUARD_UNIT)):
            path, wanted = UNIT_FOLDER / name, text.format(**words)
            if not path.exists() or path.read_text() != wanted:
                write_whole(path, wanted.encode())
                changed = True
        if changed:
            _systemctl("daemon-reload")
        _systemctl("enable", self.unit, self.guard)

    def restart(self) -> None:
        """Have the node of the current slot run, and the guard watch it."""
        self.restart_node()
        _systemctl("restart", "--no-block", self.guard)

    def restart_node(self) -> None:
        """Have the node of the current slot run."""
        _systemctl("reset-failed", self.unit, check=False)
        _systemctl("restart", "--no-block", self.unit)

    def stop(self) -> None:
        """Run nothing."""
        _systemctl("stop", self.unit)

    def running(self) -> bool:
        """Whether the unit is active."""
        return _systemctl("is-active", "--quiet", self.unit, check=False) == 0

    def ends(self) -> int:
        """How often systemd started the node again since it was told to start it."""
        done = subprocess.run(
            ["systemctl", "show", "-p", "NRestarts", "--value", self.unit],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return int(done.stdout.strip() or 0) if done.stdout.strip().isdigit() else 0


def _systemctl(*words: str, check: bool = True) -> int:
    done = subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise DeviceError(f"systemctl {' '.join(words)}: {done.stderr.strip()}")
    return done.returncode


class Supervised:
    """The node below our own supervisor, a process of its own."""

    def __init__(self, places: Places, settings: dict[str, Any]) -> None:
        self.places = places
        self.settings = settings
        self.pid_file = places.prefix / "supervisor.pid"

    def install(self) -> None:
        """Write the script that starts and stops it, as init systems expect one."""
        script = self.places.prefix / "headwater-service"
        text = INIT_SCRIPT.format(
            unit=unit_name(self.settings), name=self.settings["name"],
            python=self.places.python, agent=self.places.agent, prefix=self.places.prefix,
        )  # fmt: skip
        write_whole(script, text.encode(), 0o755)

    def restart(self) -> None:
        """Have the node of the current slot run; starts the supervisor where none is."""
        pid = self.pid()
        if pid:
            os.kill(pid, signal.SIGHUP)
            return
        self.start(new_trial=True)

    def start(self, new_trial: bool = False) -> None:
        """Start the supervisor as a daemon, unless it runs. Raises DeviceError."""
        if self.pid():
            return
        words = [str(self.places.python), str(self.places.agent), "supervise",
                 "--prefix", str(self.places.prefix)]  # fmt: skip
        words += ["--new-trial"] if new_trial else []
        folder = Path(self.settings["data"]) / "log"
        give(folder, self.settings, 0o755)
        with (folder / "supervisor.log").open("ab") as log:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                cwd="/",
            )  # fmt: skip
        deadline = time.monotonic() + STOP_S
        while self.pid() != process.pid:
            if process.poll() is not None or time.monotonic() > deadline:
                raise DeviceError(f"the supervisor did not start; see {log.name}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop the supervisor and the node. Raises DeviceError."""
        pid = self.pid()
        if not pid:
            return
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        while self.pid() == pid:
            if time.monotonic() > deadline:
                raise DeviceError("the supervisor does not stop")
            time.sleep(0.05)

    def running(self) -> bool:
        """Whether the supervisor is there."""
        return bool(self.pid())

    def pid(self) -> int:
        """Process id of the supervisor; 0 when none runs."""
        try:
            pid = int(self.pid_file.read_text())
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return 0
        ours = b"supervise" in words and str(self.places.prefix).encode() in words
        return pid if ours else 0


def service_of(places: Places, settings: dict[str, Any]) -> Systemd | Supervised:
    """What runs the node of this gateway."""
    kind = settings.get("service", "systemd")
    if kind == "systemd":
        return Systemd(places, settings)
    if kind == "supervisor":
        return Supervised(places, settings)
    raise DeviceError(f"service is systemd or supervisor, not {kind!r}")
