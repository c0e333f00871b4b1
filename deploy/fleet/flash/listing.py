"""Rows about gateways, as they were seen over SSH."""

from collections.abc import Mapping, Sequence
from typing import Any

from headwater.deploy.fleet.flash.results import HostResult

COLUMNS = ("name", "state", "version", "slot", "backlog", "clock", "error")


def as_rows(results: Sequence[HostResult], seen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each gateway: version, slot, whether it is joined, backlog, clock offset."""
    rows = []
    for result in results:
        facts = seen.get(result.name)
        status = facts.status if facts is not None else {}
        node = status.get("node") or {}
        joined = bool(node.get("joined"))
        waiting = node.get("backlog") or {}
        rows.append({
            "name": result.name, "state": _word(result, status, node), "joined": joined,
            "version": result.version, "slot": result.slot, "backlog": waiting,
            "clock_offset_s": round(facts.skew_s, 1) if facts is not None else None,
            "error": result.error or node.get("why", ""),
        })  # fmt: skip
    return rows


def _word(result: HostResult, status: dict[str, Any], node: dict[str, Any]) -> str:
    if result.error:
        return result.state
    if not status:
        return "not flashed"
    if not status["service"]["running"]:
        return "stopped"
    return "joined" if node.get("joined") else "not joined"


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Text in columns."""
    shown = [COLUMNS]
    for row in rows:
        waiting = row["backlog"]
        offset = row["clock_offset_s"]
        shown.append((
            row["name"], row["state"], row["version"], row["slot"],
            f"{waiting['messages']} msgs" if waiting else "",
            f"{offset:+.0f} s" if offset is not None else "", row["error"],
        ))  # fmt: skip
    widths = [max(len(line[each]) for line in shown) for each in range(len(COLUMNS))]
    lines = ["  ".join(w.ljust(n) for w, n in zip(line, widths, strict=True)) for line in shown]
    return "\n".join(line.rstrip() for line in lines)
