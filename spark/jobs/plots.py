"""Plots of what jobs found: one picture each, drawn without a display."""

import importlib.util
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.spark.errors import OptionError, SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.backfill import BackfillResult
    from headwater.spark.jobs.export import ExportResult

Findings = Sequence[Mapping[str, Any]]
KINDS = (".png", ".svg", ".pdf")
#: Most rows or lines of a picture: more cannot be told apart.
MOST = 20
#: Most points of a line.
MOST_POINTS = 5000


def check_plot(path: str | None) -> None:
    """Raise OptionError for what cannot be drawn, before anything is started."""
    if path is None:
        return
    folder = Path(path).absolute().parent
    if Path(path).suffix not in KINDS or not folder.is_dir():
        raise OptionError(f"--plot {path!r} is no {', '.join(KINDS)} file in a folder that exists")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OptionError(f"--plot {path!r}: {folder} takes no files: {error.strerror}") from error
    if importlib.util.find_spec("matplotlib") is None:
        raise OptionError("--plot needs matplotlib: pip install 'headwater[spark]'")


@contextmanager
def _axes(path: str, title: str) -> "Iterator[Any]":
    """Axes to draw on, saved at the end. Raises SourceError for a file that cannot be written."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(11, 5), layout="constrained")
    try:
        axes.set_title(title)
        yield axes
        try:
            figure.savefig(path, dpi=110)
        except OSError as error:
            raise SourceError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        pyplot.close(figure)


def plot_rollup(spark: "SparkSession", folder: str, path: str) -> None:
    """Averages over time, of the devices and metrics with most messages."""
    from pyspark.sql import functions as f

    frame = spark.read.parquet(folder)
    counts = frame.groupBy("device", "metric").agg(f.sum("count").alias("count"))
    busiest = counts.orderBy(f.desc("count"), "device", "metric").limit(6).collect()
    with _axes(path, "averages per window, of those with most messages") as axes:
        for each in busiest:
            named = (f.col("device") == each["device"]) & (f.col("metric") == each["metric"])
            rows = frame.where(named).orderBy("window_start").select("window_start", "avg")
            points = rows.limit(MOST_POINTS).collect()
            line = [row["window_start"] for row in points], [row["avg"] for row in points]
            axes.plot(*line, marker=".", label=f"{each['device']} {each['metric']}")
        if busiest:
            axes.legend(loc="best")


def plot_uptime(findings: Findings, numbers: Mapping[str, Any], path: str) -> None:
    """A row for each device, those with the least uptime first; red where it was offline.
    `numbers` are those of `UptimeResult`."""
    devices = numbers["devices"][:MOST]
    with _axes(path, f"offline for longer than {numbers['silence_us'] / 1e6:g} s") as axes:
        for row, device in enumerate(devices):
            _bar(axes, row, device["first_us"], numbers["until_us"], "tab:green")
            for found in findings:
                if found["key"] == device["key"]:
                    _bar(axes, row, found["from_us"], found["until_us"], "tab:red")
        _rows(axes, [f"{device['key']}  {device['uptime']:.2%}" for device in devices])


def plot_gaps(findings: Findings, numbers: Mapping[str, Any], path: str) -> None:
    """A row for each key, those that lack most first; red where something is missing. `numbers`
    are those of `GapsResult`."""
    missing: dict[str, int] = {}
    for found in findings:
        missing[found["key"]] = missing.get(found["key"], 0) + found["missing"]
    keys = sorted(missing, key=lambda key: (-missing[key], key))[:MOST]
    title = f"{numbers.get('missing', 0):,} missing in {numbers.get('gaps', 0):,} gaps"
    with _axes(path, title) as axes:
        for found in findings:
            if found["key"] in keys:
                row = keys.index(found["key"])
                if "from_us" in found:
                    _bar(axes, row, found["from_us"], found["until_us"], "tab:red")
                else:
                    _stretch(axes, row, found, "tab:red")
        _rows(axes, [f"{key}  {missing[key]:,}" for key in keys])
        if keys and "from_us" not in findings[0]:
            axes.set_xlabel("sequence or counter")


def plot_anomaly(findings: Findings, numbers: Mapping[str, Any], path: str) -> None:
    """How strange the findings are, over time, of the keys with most of them. `numbers` are those
    of `AnomalyResult`."""
    by_key: dict[str, list[Mapping[str, Any]]] = {}
    for found in findings:
        by_key.setdefault(found["key"], []).append(found)
    title = f"{numbers.get('anomalies', 0):,} strange values of {numbers.get('keys', 0):,} keys"
    with _axes(path, title) as axes:
        for key in sorted(by_key, key=lambda key: -len(by_key[key]))[:MOST]:
            times = [_moment(found["t_us"]) for found in by_key[key]]
            axes.plot(times, [each["strangeness"] for each in by_key[key]], "o", label=key)
        axes.set_ylabel("deviations from what was usual")
        if by_key:
            axes.legend(loc="best")


def plot_audit(findings: Findings, numbers: Mapping[str, Any], path: str) -> None:
    """Where the streams differ, by kind, along their sequences. `numbers` are those of
    `AuditResult`."""
    kinds = ["missing", "extra", "different", "expired", "kept"]
    end = numbers.get("end", 0)
    with _axes(path, f"mirror against origin, up to sequence {end:,}") as axes:
        for found in findings:
            _stretch(axes, kinds.index(found["kind"]), found, "tab:red")
        _rows(axes, [f"{kind}  {numbers.get(kind, 0):,}" for kind in kinds])
        axes.set_xlim(0, end + 1)
        axes.set_xlabel("sequence")


def plot_export(result: "ExportResult", path: str) -> None:
    """A row for each stream, those with most rows first, with its pieces along the sequences:
    yellow where messages of a piece expired, red where they were lost."""
    from headwater.spark.jobs.export import read_manifest

    stretches = [
        {
            "stream": piece["range"]["stream"],
            "first": piece["range"]["start"],
            "last": piece["range"]["end"],
            "rows": piece["rows"],
            "kind": "lost" if piece["lost"] else "expired" if piece["expired"] else "exported",
        }
        for piece in read_manifest(Path(result.path))["pieces"]
        if "rows" in piece
    ]
    title = f"{result.rows:,} of {result.planned:,} messages exported"
    _stretches(path, title, stretches, {
        "exported": "tab:green", "expired": "gold", "lost": "tab:red"
    })  # fmt: skip


def plot_backfill(result: "BackfillResult", path: str) -> None:
    """A row for each stream of origin, with what is in the target along its sequences: grey what
    earlier runs wrote."""
    title = f"{result.rows:,} of {result.planned:,} messages written into {result.stream}"
    _stretches(path, title, result.parts, {"written": "tab:green", "earlier": "tab:gray"})


def _stretches(
    path: str, title: str, stretches: Sequence[Mapping[str, Any]], colors: Mapping[str, str]
) -> None:
    """Stretches of sequences of streams, in the color of their kind."""
    rows: dict[str, int] = {}
    for part in stretches:
        rows[part["stream"]] = rows.get(part["stream"], 0) + part["rows"]
    streams = sorted(rows, key=lambda stream: (-rows[stream], stream))[:MOST]
    with _axes(path, title) as axes:
        for part in stretches:
            if part["stream"] in streams:
                _stretch(axes, streams.index(part["stream"]), part, colors[part["kind"]])
        _rows(axes, [f"{stream}  {rows[stream]:,}" for stream in streams])
        axes.set_xlabel("sequence")
        marks = [axes.barh(0, 0, color=color, label=kind) for kind, color in colors.items()]
        axes.legend(handles=marks, loc="best")


def _bar(axes: Any, row: int, from_us: int, until_us: int, color: str) -> None:
    first, last = _moment(from_us), _moment(until_us)
    axes.barh(row, last - first, left=first, height=0.6, color=color)


def _stretch(axes: Any, row: int, found: Mapping[str, Any], color: str) -> None:
    """Sequences, or counters; the edge shows what would be narrower than a pixel."""
    width = found["last"] - found["first"] + 1
    axes.barh(row, width, left=found["first"], height=0.6, color=color, edgecolor=color)


def _rows(axes: Any, labels: list[str]) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()


def _moment(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1e6, UTC)
