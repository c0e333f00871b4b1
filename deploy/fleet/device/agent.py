"""The program on the gateway: `python3 agent.pyz VERB --prefix /opt/headwater`.

It answers on standard output, one JSON object a line: phases as they begin, and at last `result`
or `error`. What it needs to know comes on standard input, so that no secret is ever an argument.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.deploy.fleet.device import trial
from headwater.deploy.fleet.device.apply import Apply, overview, roll_back
from headwater.deploy.fleet.device.bundle_file import BundleError
from headwater.deploy.fleet.device.places import DeviceError, Places, boot_id
from headwater.deploy.fleet.device.services import Supervised, Systemd, service_of
from headwater.deploy.fleet.device.supervisor import Supervisor
from headwater.deploy.fleet.device.watcher import look, restore_previous

GUARD_TICK_S = 1.0


class Broken(Exception):
    """Nobody listens any more."""


class Teller:
    """Says how far it is. When nobody listens any more it stops, unless the switch is made."""

    def __init__(self) -> None:
        self.switched = False

    def __call__(self, phase: str) -> None:
        self.say({"phase": phase})
        if phase == "switch":
            self.switched = True

    def say(self, what: dict[str, Any]) -> None:
        """One line."""
        try:
            print(json.dumps(what), flush=True)
        except OSError:
            if not self.switched:
                raise Broken from None


def apply(places: Places, tell: Teller, _: argparse.Namespace) -> dict[str, Any]:
    """Bring the gateway to what standard input asks for."""
    spec = json.loads(sys.stdin.readline())
    (places.prefix / "slots").mkdir(exist_ok=True)
    return Apply(places, spec, tell).run()


def rollback(places: Places, tell: Teller, arguments: argparse.Namespace) -> dict[str, Any]:
    """Go back to the version before."""
    return roll_back(places, tell, arguments.deadline)


def status(places: Places, _: Teller, __: argparse.Namespace) -> dict[str, Any]:
    """What is known of the gateway."""
    return overview(places)


def start(places: Places, _: Teller, __: argparse.Namespace) -> dict[str, Any]:
    """Start the supervisor."""
    service = service_of(places, places.settings())
    if isinstance(service, Supervised):
        service.start()
    return {"running": service.running()}


def stop(places: Places, _: Teller, __: argparse.Namespace) -> dict[str, Any]:
    """Stop the node."""
    service = service_of(places, places.settings())
    service.stop()
    return {"running": service.running()}


def before_start(places: Places, _: Teller, __: argparse.Namespace) -> dict[str, Any]:
    """Of systemd, before each start of the node: a trial ends with the machine's start."""
    trying = places.state()["trying"]
    if trying is not None and trying["boot"] != boot_id():
        restore_previous(places, trial.started_anew(trying, boot_id()))
    return {"slot": places.active()}


def guard(places: Places, _: Teller, __: argparse.Namespace) -> dict[str, Any]:
    """Of systemd: watch a trial until it is decided."""
    service = Systemd(places, places.settings())
    while True:
        verdict = look(places, service.settings, service.ends())
        if verdict == trial.BACK:
            if places.active():
                service.restart_node()
            else:
                service.stop()
        if verdict != trial.WAIT:
            return {"verdict": verdict or "no trial"}
        time.sleep(GUARD_TICK_S)


VERBS: dict[str, Callable[[Places, Teller, argparse.Namespace], dict[str, Any]]] = {
    "apply": apply, "rollback": rollback, "status": status, "start": start, "stop": stop,
    "before-start": before_start, "guard": guard,
}  # fmt: skip


def main() -> int:
    """Exit status 0, 1 with an error on the last line, or 2."""
    parser = argparse.ArgumentParser(prog="agent")
    parser.add_argument("verb", choices=[*VERBS, "supervise"])
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--deadline", type=float, default=300.0)
    parser.add_argument("--new-trial", action="store_true")
    arguments = parser.parse_args()
    os.umask(0o022)
    places = Places(Path(arguments.prefix))
    if arguments.verb == "supervise":
        return Supervisor(places).run(arguments.new_trial)
    # A connection that ends must not end this in the middle of a switch.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    tell = Teller()
    try:
        tell.say({"result": VERBS[arguments.verb](places, tell, arguments)})
    except Broken:
        return 1
    except (DeviceError, BundleError, OSError, ValueError, KeyError) as error:
        tell.say({"error": str(error) or type(error).__name__})
        return 1
    return 0
