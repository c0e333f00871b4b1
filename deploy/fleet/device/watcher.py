"""Carries out what `trial` decides: keeps a slot, or brings the one before back."""

import json
import os
import time
from pathlib import Path
from typing import Any

from headwater.deploy.fleet.device import trial
from headwater.deploy.fleet.device.places import Places, boot_id, uptime

LOG_TAIL_BYTES = 4096
LINE_MAX = 300


def node_status(settings: dict[str, Any]) -> dict[str, Any]:
    """What the node says of itself (`run/status.json` in its data); empty when it is gone."""
    try:
        found = json.loads((Path(settings["data"]) / "run/status.json").read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict) or not os.path.exists(f"/proc/{found.get('pid')}"):
        return {}
    return found


def look(places: Places, settings: dict[str, Any], ends: int) -> str:
    """One look at a trial; returns "" without one, else `trial.WAIT`, COMMIT or BACK as done.

    After BACK the caller has to have the node of the slot that is current now run.
    """
    state = places.state()
    trying = state["trying"]
    if trying is None:
        return ""
    trying["ends"] = max(ends, trying["ends"])
    well_before = trying["well_since"]
    verdict, reason = trial.judge(trying, node_status(settings), boot_id(), uptime())
    if verdict == trial.COMMIT:
        _finish(places, state, "committed", reason)
    elif verdict == trial.BACK:
        restore_previous(places, reason)
    elif trying["well_since"] != well_before:
        places.keep_state(state)
    return verdict


def restore_previous(places: Places, reason: str) -> None:
    """Bring the slot before the trial back; without one, nothing is current any more."""
    state = places.state()
    places.point_at(state["trying"]["back"])
    said = last_words(places)
    _finish(places, state, "rolled_back", f"{reason} (its log: {said})" if said else reason)


def last_words(places: Places) -> str:
    """The last line of the node's log; empty where systemd keeps that."""
    try:
        with (Path(places.settings()["data"]) / "log/node.log").open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    said = [line.strip() for line in lines if line.strip()]
    return said[-1][-LINE_MAX:] if said else ""


def _finish(places: Places, state: dict[str, Any], outcome: str, reason: str) -> None:
    version = places.identity(state["trying"]["slot"]).get("version", "")
    trial.finish(state, outcome, reason, version, time.time())
    places.keep_state(state)
