"""The demo's table and plot, from the Parquet files that the rollup wrote."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from headwater.deploy.demo.verify import Verdict

ROWS_SHOWN = 12


def read_rollup(folder: Path) -> list[dict[str, Any]]:
    """Rows of the rollup, in order of device, metric and window."""
    import pyarrow.parquet as parquet

    rows: list[dict[str, Any]] = parquet.read_table(folder).to_pylist()
    return sorted(rows, key=lambda row: (row["device"], row["metric"], row["window_start"]))


def print_table(rows: list[dict[str, Any]], verdict: Verdict) -> None:
    """The busiest groups, and the counts."""
    busiest = sorted(rows, key=lambda row: -row["count"])[:ROWS_SHOWN]
    table = Table(title=f"rollup: {len(rows)} groups, the {len(busiest)} largest")
    for name in ("device", "metric", "window", "count", "min", "avg", "max"):
        table.add_column(name, justify="left" if name in ("device", "metric") else "right")
    for row in sorted(busiest, key=lambda row: (row["device"], row["metric"])):
        table.add_row(
            row["device"],
            row["metric"],
            f"{row['window_start']:%Y-%m-%d %H:%M:%S}",
            str(row["count"]),
            *(f"{row[name]:.2f}" for name in ("min", "avg", "max")),
        )
    console = Console(width=None if Console().is_terminal else 120)
    console.print(table)
    console.print(f"{verdict.published} samples promised, {verdict.aggregated} analysed")


def plot(rows: list[dict[str, Any]], path: Path) -> str:
    """Draw one device's rollup to `path` (PNG); returns what it shows."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    device, metric = _most_telling(rows)
    series = [row for row in rows if row["device"] == device and row["metric"] == metric]
    times = [row["window_start"] for row in series]
    figure, axes = pyplot.subplots(figsize=(10, 4.5), layout="constrained")
    axes.fill_between(
        times, [r["min"] for r in series], [r["max"] for r in series], alpha=0.25, label="min–max"
    )
    axes.plot(times, [r["avg"] for r in series], marker=".", label="average")
    axes.set_title(f"{device}: {metric}")
    axes.set_ylabel(metric.rsplit(".", 1)[-1])
    axes.legend(loc="best")
    figure.autofmt_xdate()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return f"{metric} of {device}"


def _most_telling(rows: list[dict[str, Any]]) -> tuple[str, str]:
    """The device and metric with the most windows; live CPU first when there is a choice."""
    windows: dict[tuple[str, str], int] = {}
    for row in rows:
        key = (row["device"], row["metric"])
        windows[key] = windows.get(key, 0) + 1
    return max(windows, key=lambda key: (key[1].startswith("cpu."), windows[key], key))
