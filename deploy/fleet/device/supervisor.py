"""Runs the node where there is no systemd: starts it again, turns its log, watches trials.

One process, one thread, one child. SIGTERM stops both, SIGHUP has the node of the current slot
run. It runs as root where it can, so that the link `current` is out of the node's reach; the node
runs as its own user.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from headwater.deploy.fleet.device import trial
from headwater.deploy.fleet.device.places import Places, boot_id, uptime
from headwater.deploy.fleet.device.services import STOP_S, as_node, give, node_command
from headwater.deploy.fleet.device.watcher import look, restore_previous

TICK_S = 0.2
PAUSE_MIN_S = 0.5
PAUSE_MAX_S = 30.0
STEADY_S = 60.0
"""A node that ran for so long is started again at once."""
LOG_BYTES_MAX = 4 << 20
LOG_FILES = 3
PR_SET_PDEATHSIG = 1


class Supervisor:
    """One gateway's node and its log."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.settings = places.settings()
        self.log = Path(self.settings["data"]) / "log/node.log"
        self._child: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        self._pause = PAUSE_MIN_S
        self._next_start = 0.0
        self._ends = 0
        self._stopping = False
        self._again = False

    def run(self, new_trial: bool) -> int:
        """Until SIGTERM; returns the exit status."""
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_hangup)
        trying = self.places.state()["trying"]
        if trying is not None and not new_trial:
            restore_previous(self.places, trial.started_anew(trying, boot_id()))
        (self.places.prefix / "supervisor.pid").write_text(str(os.getpid()))
        while not self._stopping:
            self._tick()
            time.sleep(TICK_S)
        self._stop_child()
        (self.places.prefix / "supervisor.pid").unlink(missing_ok=True)
        return 0

    def _on_stop(self, *_: Any) -> None:
        self._stopping = True

    def _on_hangup(self, *_: Any) -> None:
        self._again = True

    def _tick(self) -> None:
        if self._again:
            self._again = False
            self.settings = self.places.settings()
            self._stop_child()
            self._ends, self._pause, self._next_start = 0, PAUSE_MIN_S, 0.0
        self._reap()
        if look(self.places, self.settings, self._ends) == trial.BACK:
            self._stop_child()
            self._ends, self._next_start = 0, 0.0
        if self._child is None and self.places.active() and uptime() >= self._next_start:
            self._start_child()
        self._turn_log()

    def _start_child(self) -> None:
        data = Path(self.settings["data"])
        for folder in ("", "log", "run"):
            give(data / folder, self.settings, 0o755 if folder == "log" else 0o700)
        give(data, self.settings, 0o755)
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                node_command(self.places), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=data, start_new_session=True, preexec_fn=end_with_parent,
                **as_node(self.settings),
            )  # fmt: skip
        self._began = uptime()

    def _reap(self) -> None:
        if self._child is None or self._child.poll() is None:
            return
        lived = uptime() - self._began
        say(f"the node ended with status {self._child.returncode} after {lived:.1f} s")
        self._child = None
        self._ends += 1
        if lived >= STEADY_S:
            self._pause = PAUSE_MIN_S
        self._next_start = uptime() + self._pause
        self._pause = min(self._pause * 2, PAUSE_MAX_S)

    def _stop_child(self) -> None:
        child = self._child
        if child is None:
            return
        child.terminate()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            say("the node does not stop; it is killed")
            child.kill()
            child.wait()
        self._child = None

    def _turn_log(self) -> None:
        """Copy and empty the log when it is long: the node writes at its end wherever that is."""
        try:
            if self.log.stat().st_size < LOG_BYTES_MAX:
                return
            for number in range(LOG_FILES - 1, 0, -1):
                older = self.log.with_name(f"node.log.{number}")
                if older.exists():
                    os.replace(older, self.log.with_name(f"node.log.{number + 1}"))
            shutil.copyfile(self.log, self.log.with_name("node.log.1"))
            os.truncate(self.log, 0)
        except OSError as error:
            say(f"cannot turn the log: {error}")


def end_with_parent() -> None:
    """A killed supervisor leaves no node that holds the store (prctl(2))."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def say(text: str) -> None:
    """A line of the supervisor's own log."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", file=sys.stderr, flush=True)
