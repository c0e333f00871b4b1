"""The picture of a job that follows: drawn anew while it runs, of what this run has found."""

import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headwater.spark.jobs.job import MAX_LISTED

#: Seconds between two drawings.
REDRAW = 30.0

Draw = Callable[[str], None]
DrawFindings = Callable[[Sequence[Mapping[str, Any]], Mapping[str, Any], str], None]


class Picture:
    """Draws into a file that always holds a whole picture; without a path, nothing.

    `complain` is told why a picture could not be drawn: the job goes on without it.
    """

    def __init__(self, path: str | None, complain: Callable[[str], None]) -> None:
        self._path = path
        self._complain = complain
        self._found: deque[Mapping[str, Any]] = deque(maxlen=MAX_LISTED)
        self._drawn_at = 0.0
        self._drawn_state: object = None

    def add(self, finding: Mapping[str, Any]) -> None:
        """Keep a finding for the next drawing: the newest 1000 are kept."""
        if self._path:
            self._found.append(finding)

    def draw_findings(
        self, draw: DrawFindings, numbers: Mapping[str, Any], last: bool = False
    ) -> None:
        """Draw the findings so far, as `draw`, when something is new."""
        self.draw(lambda path: draw(list(self._found), numbers, path), dict(numbers), last)

    def draw(self, draw: Draw, state: object, last: bool = False) -> None:
        """Draw if `state` is another one than at the last drawing, and that was long enough ago;
        the `last` drawing does not wait."""
        if not self._path or (state == self._drawn_state and not last):
            return
        if time.monotonic() - self._drawn_at < REDRAW and self._drawn_at and not last:
            return
        try:
            _replace(Path(self._path).absolute(), draw)
        except Exception as error:
            self._complain(f"{self._path} is not drawn: {error}")
        self._drawn_at, self._drawn_state = time.monotonic(), state


def _replace(path: Path, draw: Draw) -> None:
    with tempfile.TemporaryDirectory(prefix=".plot-", dir=path.parent) as folder:
        made = Path(folder, path.name)
        draw(str(made))
        os.replace(made, path)


def uptime_numbers(
    findings: Sequence[Mapping[str, Any]], silence_us: int, until_us: int
) -> tuple[list[Mapping[str, Any]], dict[str, Any]]:
    """What `plot_uptime` draws of the lines of a job that follows: a silence that was told as open
    and has ended is one, and an open one lasts until now."""
    silences: dict[tuple[str, int], dict[str, Any]] = {}
    for found in findings:
        silences[found["key"], found["from_us"]] = dict(found)
    for found in silences.values():
        if found["open"]:
            found["until_us"] = until_us
    first = min((from_us for _, from_us in silences), default=until_us)
    away: dict[str, int] = {}
    for (key, from_us), found in silences.items():
        away[key] = away.get(key, 0) + found["until_us"] - from_us
    devices = [
        {"key": key, "first_us": first, "uptime": 1 - away[key] / max(1, until_us - first)}
        for key in sorted(away, key=lambda key: (-away[key], key))
    ]
    numbers = {"silence_us": silence_us, "until_us": until_us, "devices": devices}
    return list(silences.values()), numbers
