"""`python -m bench.cluster.speed`: a cluster of ours beside three nats-servers, row by row.

Ours acknowledges when a quorum has synced a message. `real` is nats-server at its default, which
syncs every two minutes; `real-synced` syncs before each acknowledgement. Every row runs in a fresh
cluster, the servers in turn, on one machine. Figures are medians of the rounds.

`spread` and `pairs` compare several nodes of ours, one for each core at least, with one nats-server
that has all cores.
"""

import asyncio
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click

from bench import build, machine
from bench.cluster.nodes import SERVERS, ClusterNodes
from bench.cluster.rows import ALL_CORES, ROWS, Amounts, Figures
from bench.patterns import Mismatch
from bench.servers import ServerFailed, end_on_sigterm
from headwater.edge.wire.message import WireError

OURS, THEIRS, SYNCED = "headwater", "real", "real-synced"

SIZES = {
    "tiny": Amounts(640, 128, 4, 5, 6, 0.2, 500, 500, 5.0),
    "small": Amounts(60_000, 4_000, 64, 50, 100, 5.0, 100_000, 100_000, 10.0),
    "normal": Amounts(),
}
MORE = "lame_duck_duration: 30s\nlame_duck_grace_period: 1s\n"


@dataclass(frozen=True)
class Metric:
    """A figure: what it is, whether more is better, and what is required of it."""

    title: str
    more: bool = True
    floor: float = 0.0
    """Of the ratio to nats-server at its default; 0 for none."""
    floor_synced: float = 0.0
    most: float = 0.0
    """Of our own figure, in its unit; 0 for none."""


METRICS = {
    "window-128": Metric("R3 window 1000, 128 B, messages/s", True, 1.5, 10),
    "window-1024": Metric("R3 window 1000, 1 KiB, messages/s", True, 1.0, 10),
    "waiting": Metric("R3 synchronous publishers, messages/s", True, 0.7, 3),
    "consumer": Metric("R3 pull by 500, ack each, messages/s", True, 1.5),
    "gap-kill": Metric("gap in acks, leader killed, s", False, most=2.0),
    "gap-step-down": Metric("gap in acks, step-down, s", False, most=0.3),
    "gap-lame-duck": Metric("gap in acks, lame duck, s", False, most=0.3),
    "gap-rolling": Metric("gap in acks, rolling restart, s", False, most=0.3),
    "remade": Metric("follower made again, s", False, 1.0),
    "behind-memory": Metric("leader of a follower that stands still, MiB more", False, 1.0),
    "behind": Metric("follower that stood still has everything, s", False),
    "idle-made": Metric("R3 streams, time to make them, s", False),
    "idle-cpu": Metric("idle R3 streams, % of a core, all nodes", False, 1.0),
    "idle-memory": Metric("idle R3 streams, MiB, all nodes", False, 1.0),
    "idle-led": Metric("start until all streams have leaders, s", False, 1.0),
    "spread": Metric("R1 streams on several nodes, messages/s"),
    "pairs": Metric("1 -> 1 on several nodes, messages/s"),
}


@dataclass
class Report:
    """Figures by metric and server, one of each round."""

    found: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def add(self, server: str, figures: Figures) -> None:
        """Note what a row gave."""
        for name, value in figures.items():
            self.found.setdefault(name, {}).setdefault(server, []).append(value)

    def median(self, metric: str, server: str) -> float | None:
        """The middle of the rounds; None when there is no figure."""
        values = self.found.get(metric, {}).get(server)
        return statistics.median(values) if values else None

    def ratio(self, metric: str, server: str) -> float | None:
        """Ours beside theirs; above 1 ours is better."""
        ours, theirs = self.median(metric, OURS), self.median(metric, server)
        if not ours or not theirs:
            return None
        return ours / theirs if METRICS[metric].more else theirs / ours

    def missed(self) -> list[str]:
        """What is required and was not reached, in words."""
        said = []
        for name, metric in METRICS.items():
            floors = ((THEIRS, metric.floor), (SYNCED, metric.floor_synced))
            for server, floor in floors:
                ratio = self.ratio(name, server)
                if ratio is not None and ratio < floor:
                    said.append(f"{metric.title}: {ratio:.2f} of {server}, {floor} is required")
            ours = self.median(name, OURS)
            if metric.most and ours is not None and ours > metric.most:
                said.append(f"{metric.title}: {ours:.2f}, {metric.most} at most is required")
        return said

    def table(self) -> str:
        """Markdown."""
        heads = ("what", OURS, THEIRS, "ratio", SYNCED, "ratio")
        rows = [heads, ("---",) * len(heads)]
        for name in METRICS:
            if name in self.found:
                cells = [METRICS[name].title, shown(self.median(name, OURS))]
                for server in (THEIRS, SYNCED):
                    cells.append(shown(self.median(name, server)))
                    cells.append(shown(self.ratio(name, server)))
                rows.append(tuple(cells))
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def shown(value: float | None) -> str:
    """A figure for a table."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


@dataclass(frozen=True)
class Plan:
    """What to run."""

    rows: tuple[str, ...]
    servers: tuple[str, ...]
    rounds: int
    amounts: Amounts
    nodes: int = 3
    """Of ours, in rows of several nodes."""
    parent: Path | None = None

    def steps(self) -> Iterator[tuple[str, str]]:
        """Row and server, the servers in turn."""
        for _ in range(self.rounds):
            for row in self.rows:
                for server in self.servers:
                    if row in ROWS or server != SYNCED:
                        yield row, server


async def measure(row: str, server: str, plan: Plan) -> Figures:
    """One row of one server, in a cluster of its own. Raises ServerFailed and what clients do."""
    single = row in ALL_CORES and server != OURS
    size = 1 if single else plan.nodes if row in ALL_CORES else 3
    with ClusterNodes(SERVERS[server], size, plan.parent, MORE) as nodes:
        nodes.start_all()
        await nodes.ready()
        if row in ALL_CORES:
            return await ALL_CORES[row](nodes, plan.amounts, plan.nodes)
        return await ROWS[row](nodes, plan.amounts)


def run(plan: Plan) -> Report:
    """Everything; what cannot be measured is told in the report."""
    report = Report()
    loads = build.generator().LoadError
    faults = (ServerFailed, WireError, TimeoutError, OSError, Mismatch, loads)
    for row, server in plan.steps():
        try:
            figures = asyncio.run(measure(row, server, plan))
        except (*faults, subprocess.TimeoutExpired) as error:
            report.failed.append(f"{row}, {server}: {error or type(error).__name__}")
            click.echo(report.failed[-1], err=True)
            continue
        report.add(server, figures)
        said = ", ".join(f"{name} {shown(value)}" for name, value in figures.items())
        click.echo(f"{server}: {said}", err=True)
    return report


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("rows", nargs=-1, type=click.Choice([*ROWS, *ALL_CORES]))
@click.option("--server", "servers", multiple=True, type=click.Choice(list(SERVERS)))
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--size", type=click.Choice(list(SIZES)), default="normal", show_default=True)
@click.option("--nodes", type=click.IntRange(2, 16), default=3, show_default=True,
              help="Of ours, in the rows spread and pairs.")  # fmt: skip
@click.option(
    "--dir",
    "parent",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where stores lie; a real disk, or file rows mean nothing.",
)
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON instead.")
def main(
    rows: tuple[str, ...],
    servers: tuple[str, ...],
    rounds: int,
    size: str,
    nodes: int,
    parent: Path | None,
    as_json: bool,
) -> None:
    """Measure ROWS (default: all) of a cluster beside nats-server's, and print medians and ratios.

    Exit codes: 0 all that is required was reached, 1 it was not, 2 something was not measured.
    """
    end_on_sigterm()
    picked = rows or (*ROWS, *ALL_CORES)
    plan = Plan(picked, servers or tuple(SERVERS), rounds, SIZES[size], nodes, parent)
    report = run(plan)
    if as_json:
        click.echo(json.dumps(report.found))
    else:
        click.echo(machine.look(parent).line() + "\n")
        click.echo(report.table())
    for line in report.missed():
        click.echo(f"missed: {line}", err=True)
    sys.exit(2 if report.failed else 1 if report.missed() else 0)


if __name__ == "__main__":
    main(prog_name="python -m bench.cluster.speed")
