"""Waits until all is well with a cluster, and shows how far each replica has come."""

import time
from collections.abc import Callable
from typing import Any

from headwater.deploy.console import Bars

LOOK_S = 0.5
"""Between two looks at the cluster."""
WHOLE = 100
"""Of a state that is sent as a whole: percent."""


def wait_until_well(look: Callable[[], dict[str, Any]], seconds: float) -> dict[str, Any]:
    """What `look` (`cli.gather`) finds when all is well, or when `seconds` have passed."""
    end = time.monotonic() + seconds
    with Bars() as bars:
        shown: dict[str, int] = {}
        while True:
            found = look()
            show_replicas(bars, shown, found["streams"])
            if found["healthy"] or time.monotonic() >= end:
                return found
            time.sleep(LOOK_S)


def show_replicas(bars: Bars, shown: dict[str, int], streams: list[dict[str, Any]]) -> None:
    """Move the bar of each replica that lacks something, and end those of the others. `shown` has
    the bars that there are, each with its total."""
    for row in streams:
        for replica in row["replicas"]:
            name = f"{row['account']} > {row['name']} on {replica['name']}"
            if not replica["current"]:
                done, total = progress(row, replica)
                shown[name] = total
                bars.update(name, done, total)
            elif name in shown:
                bars.update(name, shown[name], shown[name])


def progress(row: dict[str, Any], replica: dict[str, Any]) -> tuple[int, int]:
    """What a replica has of all that it is to have: percent of a state that is sent as a whole,
    or entries of the log."""
    if "arrived_percent" in replica:
        return int(replica["arrived_percent"]), WHOLE
    last = int(row.get("last", 0))
    return max(last - int(replica.get("lag", 0)), 0), max(last, 1)
