"""What became of each gateway, as JSON and for people, and the exit status that says it."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

CHANGED, UNCHANGED = "changed", "unchanged"
FAILED, UNREACHABLE, ROLLED_BACK = "failed", "unreachable", "rolled_back"
PLANNED = "planned"
"""Of a dry run."""
STATES = (CHANGED, UNCHANGED, FAILED, UNREACHABLE, ROLLED_BACK)
GOOD = (CHANGED, UNCHANGED, PLANNED)

OK, ALL_FAILED, PARTIAL, INTERRUPTED = 0, 1, 4, 130


class HostResult(msgspec.Struct, kw_only=True):
    """One gateway."""

    name: str
    state: str = FAILED
    phase: str = "connect"
    """The last one that was begun."""
    version: str = ""
    slot: str = ""
    error: str = ""
    seconds: float = 0.0
    uploaded_bytes: int = 0
    plan: str = ""


def totals(results: Iterable[HostResult]) -> dict[str, int]:
    """How many gateways are in each state."""
    counts = Counter(result.state for result in results)
    return {state: counts[state] for state in STATES}


def as_json(results: Sequence[HostResult], fleet: str) -> str:
    """One object: `hosts` and `totals`."""
    hosts = [msgspec.to_builtins(result) for result in results]
    for host in hosts:
        host["seconds"] = round(host["seconds"], 3)
    sums: dict[str, Any] = {"hosts": len(hosts), **totals(results)}
    return json.dumps({"fleet": fleet, "hosts": hosts, "totals": sums})


def exit_status(results: Sequence[HostResult], interrupted: bool) -> int:
    """0 all well, 1 none well, 4 some well, 130 interrupted."""
    if interrupted:
        return INTERRUPTED
    bad = sum(result.state not in GOOD for result in results)
    if not bad:
        return OK
    return ALL_FAILED if bad == len(results) else PARTIAL


def recap(results: Sequence[HostResult], log: Path, again: str) -> list[str]:
    """Lines for people: who failed and why, counts, and the next command."""
    lines = []
    for result in results:
        if result.state not in GOOD:
            lines.append(f"  {result.name}  {result.state} in {result.phase}: {result.error}")
        elif result.state == PLANNED:
            lines.append(f"  {result.name}  {result.plan}")
    counts = totals(results)
    ok = sum(result.state in GOOD for result in results)
    words = [f"ok={ok}", *(f"{state}={counts[state]}" for state in STATES)]
    lines.append(f"==> recap  {' '.join(words)}  log {log}")
    if ok < len(results):
        lines.append(f"next: {again} --limit @failed")
    elif all(result.state == UNCHANGED for result in results):
        lines.append("nothing had to be changed")
    return lines


class RunLog:
    """How the last run of an inventory ended, so that `@failed` can name who failed."""

    def __init__(self, folder: Path, inventory: Path) -> None:
        mark = hashlib.sha256(str(inventory.resolve()).encode()).hexdigest()[:16]
        self.path = folder / f"{inventory.stem}-{mark}.json"

    def failed(self) -> list[str]:
        """Names of those that are not well since the last run that had them."""
        return [name for name, state in self._states().items() if state not in GOOD]

    def keep(self, results: Sequence[HostResult]) -> None:
        """Remember results; hosts that were not in this run stay as they were."""
        known = self._states()
        known.update({result.name: result.state for result in results})
        details = [msgspec.to_builtins(result) for result in results]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps({"states": known, "last": details}))

    def _states(self) -> dict[str, str]:
        try:
            found = json.loads(self.path.read_text())["states"]
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        return {str(name): str(state) for name, state in found.items()}
