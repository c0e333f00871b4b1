"""`python -m bench.cluster.raft_stages`: where a replicated publish spends time, stage by stage.

Each node of a cluster of three runs in a process that notes when Raft entries are proposed, sent,
durable here, heard, durable there, answered, committed and applied (see `stage_notes.py`). All
processes of a machine have one monotonic clock, so the notes of an entry are joined by its index.
Printed are medians and 90th percentiles of microseconds since an entry was proposed; and, of each
node since the first entry, processor time and page faults, and all bytes and syncs.
"""

import asyncio
import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from bench import build, patterns
from bench.cluster.nodes import SERVERS, ClusterNodes, whole
from bench.cluster.rows import Amounts, fresh, waiting
from bench.cluster.stage_notes import APPLY_GROUP, VARIABLE
from bench.patterns import Load
from bench.servers import ServerFailed, end_on_sigterm

NODES = 3
HEARD = ("heard", "written", "durable", "answered")
"""Of a follower, in order."""
LED = ("acked", "committed", "applying", "applied")
"""Of the leader, behind what followers do."""


class Trace:
    """What the nodes of a cluster have noted, for the group with most entries."""

    def __init__(self, paths: list[Path]) -> None:
        """Read what `stage_notes` wrote."""
        self.nodes: list[dict[str, Any]] = [json.loads(path.read_text()) for path in paths]
        proposed = [
            Counter(group for what, group, *_ in node["notes"] if what == "proposed")
            for node in self.nodes
        ]
        self.leader = max(range(len(proposed)), key=lambda number: proposed[number].total())
        if not proposed[self.leader]:
            raise ServerFailed("no node has proposed anything")
        self.group = proposed[self.leader].most_common(1)[0][0]
        self.proposed = self.covered(self.leader, "proposed")

    def covered(self, number: int, stage: str) -> dict[int, int]:
        """When a node reached a stage, by index; a note covers all entries before its own."""
        found: dict[int, int] = {}
        reach = 0
        for what, group, index, at in self.nodes[number]["notes"]:
            if what == stage and group in (self.group, APPLY_GROUP) and index > reach:
                found.update(dict.fromkeys(range(reach + 1, index + 1), at))
                reach = index
        return found

    def stages(self) -> Iterable[tuple[str, dict[int, int]]]:
        """Everything that happens to an entry, about in order."""
        leader = self.leader
        sent = {what for what, *_ in self.nodes[leader]["notes"] if what.startswith("sent to")}
        for what in (*sorted(sent), "written", "durable"):
            yield f"leader: {what}", self.covered(leader, what)
        for number in range(len(self.nodes)):
            if number != leader:
                for what in HEARD:
                    yield f"n{number}: {what}", self.covered(number, what)
        for what in LED:
            yield f"leader: {what}", self.covered(leader, what)

    def lines(self) -> Iterable[str]:
        """A table for people."""
        first = min(self.proposed)
        indexes = [index for index in self.proposed if index > first + 2]
        yield f"{len(self.proposed)} entries; microseconds since proposed: median, 90th percentile"
        for name, at in self.stages():
            yield f"{name:24}{middle([at[i] - self.proposed[i] for i in indexes if i in at])}"
        times = sorted(set(self.proposed.values()))
        gaps = [after - before for before, after in zip(times, times[1:], strict=False)]
        yield f"{'between two':24}{middle(gaps)}"
        for number, node in enumerate(self.nodes):
            yield (
                f"n{number}: {node['cpu']:.2f} s of a core, {node['faults']} page faults, "
                f"{node['written'] >> 20} MiB to the device, {node['syncs']} syncs"
            )


def middle(values: list[int]) -> str:
    """Median and 90th percentile of nanoseconds, as microseconds."""
    if not values:
        return "       -        -"
    ordered = sorted(values)
    tail = ordered[len(ordered) * 9 // 10]
    return f"{statistics.median(ordered) / 1e3:8.0f} {tail / 1e3:8.0f}"


async def run(
    size: int, messages: int, publishers: int, parent: Path | None
) -> tuple[float, Trace]:
    """Publish, and stop the nodes; returns messages per second and what was noted. Raises
    ServerFailed and what clients do."""
    recipe = SERVERS["headwater"]
    command = (sys.executable, "-m", "bench.cluster.stage_notes")
    recipe = replace(recipe, recipe=replace(recipe.recipe, command=command))
    build.generator()
    with ClusterNodes(recipe, NODES, parent) as nodes:
        paths = [nodes.path / f"stages{index}.json" for index in range(NODES)]
        for index, path in enumerate(paths):
            nodes.wrap[index] = ["env", f"{VARIABLE}={path}"]
        nodes.start_all()
        await nodes.ready()
        if publishers:
            amounts = Amounts(publishers=publishers, waits=messages // publishers)
            rate = (await waiting(nodes, amounts))["waiting"]
        else:
            port = await fresh(nodes)
            load = Load(messages, 30.0, 60.0)
            rate = (await asyncio.to_thread(patterns.fill, port, load, size)).rate
        client = await nodes.client()
        try:
            await whole(client, patterns.STREAM)
        finally:
            await client.close()
        for index in range(NODES):
            nodes.stop(index)
        return rate, Trace(paths)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--bytes", "size", default=128, show_default=True, help="Of each message.")
@click.option("--messages", default=60_000, show_default=True)
@click.option("--publishers", default=0, help="So many that wait for each ack, 128 B each.")
@click.option(
    "--dir",
    "parent",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where stores lie; a real disk, or syncs mean nothing.",
)
def main(size: int, messages: int, publishers: int, parent: Path | None) -> None:
    """Publish to a stream of three replicas, one publisher with a window of 1,000 messages, and
    print what each stage takes."""
    end_on_sigterm()
    rate, trace = asyncio.run(run(size, messages, publishers, parent))
    click.echo(f"{rate:,.0f} messages/s")
    for line in trace.lines():
        click.echo(line)


if __name__ == "__main__":
    main(prog_name="python -m bench.cluster.raft_stages")
