"""Brings a gateway to what a flash asks for: one bundle, one configuration, joined or taken back.

Whatever ends it in between (a cut connection, a signal, the power), the gateway runs what it ran
before, or what was on trial is judged on the gateway itself; the next run begins anew.
"""

import json
import os
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headwater.deploy.fleet.device import trial
from headwater.deploy.fleet.device.bundle_file import Bundle, BundleError
from headwater.deploy.fleet.device.install import (
    CONFIG,
    fill,
    slot_identity,
    target_problem,
    way_back,
)
from headwater.deploy.fleet.device.places import (
    DeviceError,
    Places,
    boot_id,
    sync_filesystem,
    uptime,
    write_whole,
)
from headwater.deploy.fleet.device.services import (
    Supervised,
    as_node,
    give,
    owner,
    prepare_user,
    service_of,
)
from headwater.deploy.fleet.device.watcher import node_status, restore_previous

Tell = Callable[[str], None]

PROBE_S = 3.0
CHECK_S = 60.0
POLL_S = 0.2
BACK_S = 60.0
DEADLINE_S = 300.0
"""For a new version to join, when nobody says another time."""
GRACE_S = 30.0
"""Time beyond the deadline in which whoever watches a trial has to decide."""
SETTINGS = ("name", "fleet", "data", "service", "unit", "run_as", "hubs")
PASSABLE = 0o055
"""The node's own user passes through, whatever umask a folder was made with."""
RESTART_KEYS = ("data", "service", "unit", "run_as")


class Apply:
    """One run. `tell` is called with the name of each phase as it begins."""

    def __init__(self, places: Places, spec: dict[str, Any], tell: Tell) -> None:
        self.places = places
        self.spec = spec
        self.tell = tell
        self.settings: dict[str, Any] = {key: spec.get(key) for key in SETTINGS}
        self.service = service_of(places, self.settings)

    def run(self) -> dict[str, Any]:
        """The result: state, slot, version, and an error. Raises DeviceError, BundleError."""
        with self.places.lock(float(self.spec.get("deadline_s", DEADLINE_S))):
            self.tell("verify")
            end_old_trial(self.places)
            pinned = self.places.pinned() or self.spec["keys"]
            path = self.places.incoming / self.spec["bundle"]
            part = path.with_suffix(".part")
            if part.exists():
                os.replace(part, path)
            if not path.exists():
                raise DeviceError(
                    "another flash of this gateway has used what was uploaded; run it again"
                )
            try:
                bundle = Bundle(path, pinned)
                try:
                    result = self._apply(bundle, pinned)
                finally:
                    bundle.close()
            except BundleError:
                path.unlink(missing_ok=True)
                raise
            path.unlink(missing_ok=True)
            return result

    def _apply(self, bundle: Bundle, pinned: list[str]) -> dict[str, Any]:
        python = ".".join(platform.python_version_tuple()[:2])
        problem = target_problem(bundle.manifest, platform.machine(), python)
        if problem:
            raise DeviceError(problem)
        more = json.dumps([self.spec["ca"], {key: self.settings[key] for key in RESTART_KEYS}])
        identity = slot_identity(bundle.digest, self.spec["config"], more)
        active = self.places.active()
        old = self.places.identity(active)
        if self._as_it_is(identity):
            return self._result("unchanged", active)
        problem = way_back(bundle.manifest["store"], old.get("store") or {})
        if problem and not self.spec.get("one_way"):
            raise DeviceError(problem)
        self.tell("install")
        slot = self.places.free()
        fill(self.places, slot, bundle, self.spec["config"], identity, self._python(), self.tell)
        self.tell("configure")
        self._configure(slot, pinned)
        for folder in (self.places.prefix, Path(self.settings["data"])):
            sync_filesystem(folder)
        self.tell("switch")
        return self.switch(slot, active, bundle.manifest.get("next_keys", []))

    def switch(self, slot: str, back: str | None, next_keys: list[str]) -> dict[str, Any]:
        """Put a slot on trial, and wait for the verdict."""
        state = self.places.state()
        join = any(map(reachable, self.settings["hubs"] or []))
        deadline = float(self.spec.get("deadline_s", DEADLINE_S))
        state["trying"] = trial.begin(slot, back, boot_id(), uptime(), deadline, join)
        self.places.keep_state(state)
        self.places.point_at(slot)
        self.tell("start")
        self.service.install()
        self.service.restart()
        self.tell("joined")
        last = await_verdict(self.places, deadline)
        if last["outcome"] != "committed":
            again = "" if await_node(self.places, self.settings) else "; nothing runs now"
            result = self._result("rolled_back", self.places.active())
            return {**result, "error": f"{last['reason']}{again}"}
        self.tell("commit")
        if next_keys:
            self.places.pin(sorted({*self.places.pinned(), *next_keys}))
        return self._result("changed", slot)

    def _as_it_is(self, identity: str) -> bool:
        """Whether what is asked for runs already."""
        state, active = self.places.state(), self.places.active()
        return (
            active is not None
            and active == state["committed"]
            and self.places.identity(active).get("identity") == identity
            and self.service.running()
        )

    def _python(self) -> str:
        """This machine's own interpreter for the slot; empty when that is a slot's."""
        found = os.path.realpath(self.places.python)
        return "" if found.startswith(f"{self.places.slots}/") else found

    def _configure(self, slot: str, pinned: list[str]) -> None:
        """User, folders, settings, credentials; and the configuration is tried."""
        prepare_user(self.settings)
        for folder in (self.places.prefix, self.places.slots):
            folder.chmod(folder.stat().st_mode | PASSABLE)
        data = Path(self.settings["data"])
        give(data, self.settings, 0o755)
        for each in ("keys", "run", "store"):
            give(data / each, self.settings)
        folder = self.places.slot(slot)
        if self.spec["ca"]:
            (folder / "ca.pem").write_text(self.spec["ca"])
        if os.geteuid() == 0:
            os.chown(folder / CONFIG, *owner(self.settings))
        if not self.places.pinned():
            self.places.pin(pinned)
        self._enrol(folder, data / "keys")
        self._try_config(folder)
        write_whole(self.places.settings_file, json.dumps(self.settings).encode())

    def _enrol(self, slot: Path, keys: Path) -> None:
        token = self.spec.get("token")
        if not token or (keys / "gateway.creds").exists():
            return
        words = [str(slot / "bin/headwater"), "edge", "enrol", "--folder", str(keys)]
        words += [word for hub in self.settings["hubs"] for word in ("--hub", hub)]
        words += ["--ca", str(slot / "ca.pem")] if self.spec["ca"] else []
        done = subprocess.run(
            words, input=token, capture_output=True, text=True, check=False, timeout=CHECK_S,
            **as_node(self.settings),
        )  # fmt: skip
        if done.returncode:
            raise DeviceError(f"enrolment: {done.stderr.strip() or done.stdout.strip()}")

    def _try_config(self, slot: Path) -> None:
        """Have the new version read its configuration, before anything is switched."""
        config = slot / CONFIG
        text = config.read_text()
        trial_copy = slot / ".try.conf"
        current, own = f"{self.places.current}/", f"{slot}/"
        trial_copy.write_text(text.replace(current, own))
        trial_copy.chmod(0o600)
        if os.geteuid() == 0:
            os.chown(trial_copy, *owner(self.settings))
        try:
            done = subprocess.run(
                [str(slot / "bin/headwater"), "serve", "-t", "-c", str(trial_copy)],
                capture_output=True, text=True, check=False, timeout=CHECK_S,
                cwd=self.settings["data"], **as_node(self.settings),
            )  # fmt: skip
        finally:
            trial_copy.unlink()
        if done.returncode:
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
            what = "; ".join(lines[-3:]).replace(str(trial_copy), CONFIG)
            raise DeviceError(f"the new version does not start with its configuration: {what}")

    def _result(self, state: str, slot: str | None) -> dict[str, Any]:
        version = self.places.identity(slot).get("version", "")
        return {"state": state, "slot": slot, "version": version, "error": ""}


def reachable(hub: str) -> bool:
    """Whether anything answers where a hub should be."""
    parts = urlsplit(hub if "://" in hub else f"nats://{hub}")
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 7422), PROBE_S):
            return True
    except (OSError, ValueError):
        return False


def await_verdict(places: Places, deadline_s: float) -> dict[str, Any]:
    """How the trial under way ends. Raises DeviceError when nobody decides."""
    until = time.monotonic() + deadline_s + GRACE_S
    while True:
        state = places.state()
        if state["trying"] is None:
            last: dict[str, Any] = state["last"]
            return last
        if time.monotonic() > until:
            raise DeviceError("nobody watches the new version; look at the service on the gateway")
        time.sleep(POLL_S)


def await_node(places: Places, settings: dict[str, Any]) -> bool:
    """Whether the node of the slot that was brought back is up again, after a while at most."""
    until = time.monotonic() + BACK_S
    while time.monotonic() < until and places.active():
        status = node_status(settings)
        if status.get("slot") == places.active() and status.get("ready"):
            return True
        time.sleep(POLL_S)
    return False


def end_old_trial(places: Places) -> None:
    """A trial that an earlier run left is decided first."""
    trying = places.state()["trying"]
    if trying is None or not places.settings_file.exists():
        return
    service = service_of(places, places.settings())
    if service.running():
        await_verdict(places, trying["deadline_s"])
    else:
        restore_previous(places, "the flash before was broken off, and nothing ran")


def roll_back(places: Places, tell: Tell, deadline_s: float) -> dict[str, Any]:
    """Put the slot before on trial again. Raises DeviceError when there is none."""
    with places.lock(deadline_s):
        end_old_trial(places)
        settings, active = places.settings(), places.active()
        other = next((name for name in ("a", "b") if name != active), "")
        there = places.identity(other)
        if active is None or not there:
            raise DeviceError("there is no version before: nothing to go back to")
        problem = way_back(there["store"], places.identity(active).get("store") or {})
        if there["store"]["writes"] < places.identity(active)["store"]["writes"]:
            raise DeviceError(f"the version before cannot read the store any more: {problem}")
        spec = {**settings, "deadline_s": deadline_s, "ca": "", "config": "", "keys": []}
        return Apply(places, spec, tell).switch(other, active, [])


def overview(places: Places) -> dict[str, Any]:
    """Everything that is known on the gateway itself, for `headwater edge status`."""
    settings, state, active = places.settings(), places.state(), places.active()
    service = service_of(places, settings)
    status = node_status(settings)
    running = service.running()
    known = bool(status) and uptime() - float(status.get("at", 0)) <= trial.FRESH_S and running
    disk = shutil.disk_usage(settings["data"])
    slots = {name: places.identity(name).get("version", "") for name in ("a", "b")}
    return {
        "name": settings["name"], "fleet": settings["fleet"], "slot": active,
        "version": slots.get(active or "", ""), "slots": slots, "state": state,
        "service": {"kind": settings["service"], "running": running,
                    "pid": service.pid() if isinstance(service, Supervised) else None},
        "node": status if known else {},
        "disk": {"free": disk.free, "total": disk.total}, "time": time.time(),
    }  # fmt: skip
