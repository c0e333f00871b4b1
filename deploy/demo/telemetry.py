"""Telemetry of an edge: what this machine measures of itself, and recorded series replayed.

A sample is {"device", "metric", "t_us", "value", "id"}: the form that the rollup job reads.
"""

import csv
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path

import msgspec
import psutil

RECORDED_PER_SAMPLE = 40
"""Recorded points between two measurements of the machine, for a run of up to 8000 samples."""


class Sample(msgspec.Struct):
    """One measured value. `t_us` is microseconds since 1970; `id` is unique in the fleet."""

    device: str
    metric: str
    t_us: int
    value: float
    id: str


def machine_metrics() -> dict[str, float]:
    """What this machine says of itself right now; temperatures only where it has sensors."""
    found = {
        f"cpu.{core}.percent": percent
        for core, percent in enumerate(psutil.cpu_percent(percpu=True))
    }
    memory = psutil.virtual_memory()
    found["memory.percent"] = memory.percent
    found["memory.available"] = float(memory.available)
    found["swap.percent"] = psutil.swap_memory().percent
    found["load.1m"] = psutil.getloadavg()[0]
    found["disk.root.percent"] = psutil.disk_usage("/").percent
    disk = psutil.disk_io_counters()
    if disk is not None:
        found["disk.read.bytes"] = float(disk.read_bytes)
        found["disk.write.bytes"] = float(disk.write_bytes)
    network = psutil.net_io_counters()
    found["net.sent.bytes"] = float(network.bytes_sent)
    found["net.received.bytes"] = float(network.bytes_recv)
    sensors = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
    for chip, readings in sensors.items():
        for number, reading in enumerate(readings):
            found[f"temperature.{chip}.{number}"] = reading.current
    return found


def recorded_series(folder: Path) -> list[Path]:
    """CSV files (timestamp,value) below `folder`, in a fixed order."""
    return sorted(folder.rglob("*.csv")) if folder.is_dir() else []


def replay(files: list[Path]) -> Iterator[tuple[str, int, float]]:
    """Points (series, t_us, value) of the files in turn, for ever; timestamps are UTC."""
    for path in cycle(files):
        with path.open(newline="") as text:
            for row in csv.DictReader(text):
                moment = datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC)
                yield path.stem, int(moment.timestamp() * 1_000_000), float(row["value"])


def samples(device: str, count: int, data: Path | None, offset: int = 0) -> Iterator[Sample]:
    """`count` samples of one edge: measurements, each followed by a share of recorded points.

    `offset` picks the recorded series to begin with, so that edges replay different ones.
    Without recorded series only the machine is measured.
    """
    files = recorded_series(data) if data is not None else []
    first = offset % len(files) if files else 0
    recorded = replay(files[first:] + files[:first]) if files else None
    share = RECORDED_PER_SAMPLE * max(1, count // 4000)
    number = 0
    while number < count:
        t_us = time.time_ns() // 1000
        batch = [(name, t_us, value) for name, value in machine_metrics().items()]
        if recorded is not None:
            for _ in range(share):
                series, moment, value = next(recorded)
                batch.append((f"recorded.{series}", moment, value))
        for metric, moment, value in batch:
            if number == count:
                return
            yield Sample(device, metric, moment, value, f"{device}-{number}")
            number += 1
