"""Decides whether a slot on trial is kept, or the one before comes back.

A trial begins before the switch. It ends well when the node of the new slot has said for a while
that it is joined, and badly when its time is over, it has ended too often, or the machine or the
watcher was started anew meanwhile: that is a power cut, and what was on trial then is not trusted.
Times are seconds since the machine's start, so a clock that is set in between moves nothing.
"""

from typing import Any

STARTS_MAX = 3
"""Ends of the node on trial; with this many it goes back."""
SETTLE_S = 2.0
"""For so long the node has to be well before the slot is kept."""
FRESH_S = 15.0
"""Age from which what a node says of itself counts no more."""

WAIT = "wait"
COMMIT = "commit"
BACK = "back"


def begin(
    slot: str, back: str | None, boot: str, now: float, deadline_s: float, join: bool
) -> dict[str, Any]:
    """The record of a trial; `join` says whether the node has to reach its hub."""
    return {
        "slot": slot, "back": back, "boot": boot, "since": now, "deadline_s": deadline_s,
        "join": join, "ends": 0, "well_since": None,
    }  # fmt: skip


def well(trying: dict[str, Any], status: dict[str, Any], now: float) -> str:
    """Why the node on trial is not well; empty when it is."""
    if status.get("slot") != trying["slot"]:
        return "the new version has not come up"
    if now - float(status.get("at", 0.0)) > FRESH_S:
        return "the new version says nothing any more"
    if not status.get("ready"):
        return "the new version is not ready yet"
    if trying["join"] and not status.get("joined"):
        return f"not joined: {status.get('why') or 'no link to a hub'}"
    return ""


def judge(
    trying: dict[str, Any], status: dict[str, Any], boot: str, now: float
) -> tuple[str, str]:
    """What to do now, and why. Sets in `trying` since when the node is well."""
    if trying["boot"] != boot:
        return BACK, "the machine was started anew during the trial"
    if trying["ends"] >= STARTS_MAX:
        return BACK, f"the new version ended {trying['ends']} times"
    problem = well(trying, status, now)
    if not problem:
        if trying["well_since"] is None:
            trying["well_since"] = now
        if now - trying["well_since"] >= SETTLE_S:
            return COMMIT, "joined" if trying["join"] else "well; the hub was away before"
        return WAIT, "settling"
    trying["well_since"] = None
    if now - trying["since"] > trying["deadline_s"]:
        return BACK, f"{problem}, within {trying['deadline_s']:g} s"
    return WAIT, problem


def started_anew(trying: dict[str, Any], boot: str) -> str:
    """Why a trial is over when its watcher starts; empty when the watcher began it itself."""
    if trying["boot"] != boot:
        return "the machine was started anew during the trial"
    return "everything was stopped during the trial"


def finish(state: dict[str, Any], outcome: str, reason: str, version: str, at: float) -> None:
    """Close the trial in the state: `committed` or `rolled_back`. `at` is Unix seconds."""
    trying = state["trying"]
    if outcome == "committed":
        state["committed"] = trying["slot"]
    state["last"] = {
        "slot": trying["slot"], "outcome": outcome, "reason": reason, "version": version, "at": at,
    }  # fmt: skip
    state["trying"] = None
