"""`python -m bench.nab`: the detector of anomalies on labelled series, by the benchmark's scoring.

The series are those of the Numenta Anomaly Benchmark that HEADWATER_DATA has (`nab/`). Scoring is
that of its paper (Lavin and Ahmad, 2015), standard profile: each labelled window counts once, the
earlier the better, each false alarm costs a little; one threshold for all series, the best one.
0 is a detector that says nothing, 100 a perfect one.
"""

import bisect
import csv
import json
import math
import os
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from headwater.spark.jobs.detector import THRESHOLD, Detector

PROBATION = 0.15
PROBATION_ROWS = 5000
FALSE_ALARM = 0.11

Series = tuple[list[tuple[datetime, float]], list[tuple[datetime, datetime]]]


def data() -> Path:
    """Where the series are, if they are there."""
    return Path(os.environ.get("HEADWATER_DATA", "../shared/data")) / "nab"


def load(folder: Path) -> dict[str, Series]:
    """Rows and windows of every series that is there."""
    labels = json.loads((folder / "anomaly_windows.json").read_text())
    found = {}
    for name, windows in sorted(labels.items()):
        if (folder / name).exists():
            with open(folder / name) as file:
                rows = [
                    (datetime.fromisoformat(row["timestamp"]), float(row["value"]))
                    for row in csv.DictReader(file)
                ]
            bounds = [
                (datetime.fromisoformat(low), datetime.fromisoformat(high)) for low, high in windows
            ]
            found[name] = rows, bounds
    return found


def sigmoid(position: float) -> float:
    """What an alarm is worth: 1 at -1 or so, which is a window's begin, 0 at its end, -1 after."""
    return 2 / (1 + math.exp(5 * position)) - 1 if position <= 3 else -1.0


class Labels:
    """What an alarm at each row of one series is worth."""

    def __init__(self, series: Series) -> None:
        rows, windows = series
        times = [moment for moment, _ in rows]
        self.begin = int(PROBATION * min(len(rows), PROBATION_ROWS))
        self.spans = [
            (bisect.bisect_left(times, low), bisect.bisect_right(times, high) - 1)
            for low, high in windows
        ]

    def worth(self, row: int) -> tuple[int | None, float]:
        """(number of the window that has the row, or None; the worth of an alarm)."""
        before = -1.0
        for number, (low, high) in enumerate(self.spans):
            if low <= row <= high:
                return number, sigmoid(-(high - row + 1) / (high - low + 1)) / sigmoid(-1.0)
            if high < row:
                before = sigmoid((row - high) / max(high - low, 1))
        return None, before


def score(found: dict[str, list[float]], series: dict[str, Series]) -> tuple[float, float]:
    """(score, the threshold that gives it) of the strangeness of every row of every series."""
    labels = {name: Labels(rows) for name, rows in series.items()}
    windows = sum(len(one.spans) for one in labels.values())
    alarms = sorted(
        (-value, name, row)
        for name, values in found.items()
        for row, value in enumerate(values)
        if row >= labels[name].begin and value > 0
    )
    best, threshold, total = 0.0, math.inf, 0.0
    told: dict[tuple[str, int], float] = {}
    for place, (value, name, row) in enumerate(alarms):
        window, worth = labels[name].worth(row)
        if window is None:
            total += FALSE_ALARM * worth
        else:
            before = told.get((name, window), -1.0)
            told[name, window] = max(before, worth)
            total += told[name, window] - before
        last = place + 1 == len(alarms) or alarms[place + 1][0] != value
        if last and total > best:
            best, threshold = total, -value
    # One that says nothing has -1 of each window, a perfect one 1.
    return 100 * best / (2 * windows), threshold


def strangeness(series: dict[str, Series], make: Callable[[], Detector]) -> dict[str, list[float]]:
    """Of every row, by a new detector for each series."""
    found = {}
    for name, (rows, _) in series.items():
        detector = make()
        found[name] = [detector.feed(value) for _, value in rows]
    return found


def main() -> int:
    """Print the score. 1 when there are no series."""
    if not data().exists():
        print(f"no series in {data()}: set HEADWATER_DATA", file=sys.stderr)
        return 1
    series = load(data())
    reached, threshold = score(strangeness(series, Detector), series)
    rows = sum(len(one[0]) for one in series.values())
    windows = sum(len(one[1]) for one in series.values())
    print(
        f"{len(series)} series, {rows:,} rows, {windows} windows: {reached:.1f} of 100 "
        f"at {threshold:.2f} deviations; the default is {THRESHOLD}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
