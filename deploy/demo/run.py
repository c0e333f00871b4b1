"""The demo's story: start, publish, cut, kill, restart, heal, catch up, aggregate, prove."""

import asyncio
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.deploy.console import Bars
from headwater.deploy.demo.fleet import FLEET_STREAM, Fleet, mirror_name
from headwater.deploy.demo.hub import NODES
from headwater.deploy.demo.processes import AgentProcess, FleetError, NodeProcess
from headwater.deploy.demo.report import plot, print_table, read_rollup
from headwater.deploy.demo.verify import Verdict, compare, read_ids
from headwater.edge.facts.reasons import reason

if TYPE_CHECKING:
    from headwater.spark.jobs.rollup import RollupResult

CUT_AT = 0.2
KILL_AT = 0.4
KILL_HUB_AT = 0.6
HEAL_AT = 0.8
"""Shares of the work done at which the story goes on."""

CATCH_UP_WITHIN_S = 90.0
TICK_S = 0.1
DOWN_S = 0.5
"""How long a node that was killed stays away."""


class Story:
    """One run of the demo."""

    def __init__(
        self, folder: Path, messages: int, edges: int, seconds: float, bars: Bars
    ) -> None:
        self.folder = folder
        self.messages = messages
        self.rate = messages / seconds
        self.bars = bars
        self.fleet = Fleet(folder, edges)
        self.agents = [self._agent(number) for number in range(edges)]
        self.cut = self.fleet.edges[: min(2, edges)]
        self.victim = self.fleet.edges[-1]

    def _agent(self, number: int) -> AgentProcess:
        edge = self.fleet.edges[number]
        arguments = ["--url", edge.url, "--messages", str(self.messages)]
        arguments += ["--offset", str(number * 7), "--rate", str(self.rate)]
        data = os.environ.get("HEADWATER_DATA", "")
        if data and Path(data).is_dir():
            arguments += ["--data", data]
        return AgentProcess(edge.name, self.folder / f"{edge.name}.acks", arguments)

    @property
    def total(self) -> int:
        """Samples that the whole fleet publishes."""
        return self.messages * len(self.agents)

    def acked(self) -> int:
        """Samples acknowledged so far."""
        return sum(agent.state["acked"] for agent in self.agents)

    async def run(self) -> None:
        """Everything up to the point where the hub has it all. Raises FleetError."""
        self.bars.say(f"starting a hub of {NODES} nodes and {len(self.agents)} edges on loopback")
        await self.fleet.start()
        self.bars.say("every edge found the hub by zeroconf and logged in")
        await self.fleet.make_streams()
        watching = asyncio.create_task(self._watch())
        try:
            await asyncio.gather(*(agent.start() for agent in self.agents))
            await asyncio.gather(self._events(), *(agent.finished() for agent in self.agents))
            await self._catch_up()
        finally:
            watching.cancel()

    async def _events(self) -> None:
        await self._until(CUT_AT)
        for edge in self.cut:
            self.fleet.uplinks[edge.name].cut()
        self.bars.say(f"uplink cut: {_names(self.cut)}; they go on accepting")
        await self._until(KILL_AT)
        await self._kill(self.victim)
        await self._until(KILL_HUB_AT)
        leader = await self.fleet.hub.leader(FLEET_STREAM)
        await self._kill(leader, ", which led the fleet's stream,")
        await self._until(HEAL_AT)
        for edge in self.cut:
            self.fleet.uplinks[edge.name].heal()
        self.bars.say(f"uplink healed: {_names(self.cut)}")

    async def _kill(self, node: NodeProcess, what: str = "") -> None:
        await node.kill()
        self.bars.say(f"{node.name}{what} killed with SIGKILL")
        await asyncio.sleep(DOWN_S)
        await node.start()
        self.bars.say(f"{node.name} started again on the same store")

    async def _until(self, share: float) -> None:
        while self.acked() < share * self.total:
            await asyncio.sleep(TICK_S)

    async def _watch(self) -> None:
        """Keep the bars true."""
        while True:
            await self._show()
            await asyncio.sleep(TICK_S * 3)

    async def _show(self) -> None:
        for agent in self.agents:
            self.bars.update(f"{agent.device} published", agent.state["acked"], self.messages)
            self.bars.update(f"{agent.device} worked on", agent.state["worked"], self.messages)
        for name, held in (("mirrored", self.fleet.mirrored), ("sourced", self.fleet.sourced)):
            count = await held()
            if count is not None:
                self.bars.update(name, count, self.total)

    async def _catch_up(self) -> None:
        deadline = time.monotonic() + CATCH_UP_WITHIN_S
        while time.monotonic() < deadline:
            mirrored, sourced = await self.fleet.mirrored(), await self.fleet.sourced()
            if min(mirrored or 0, sourced or 0) >= self.total:
                await self._show()
                return
            await asyncio.sleep(TICK_S)
        self.bars.say("mirrors did not catch up in time; counting what there is")

    async def verdict(self, aggregated: int, spark_duplicates: int) -> Verdict:
        """Compare ids that were acknowledged with ids that the hub holds."""
        client = self.fleet.hub.client
        promised = [name for agent in self.agents for name in agent.acked_ids()]
        mirrored: list[str] = []
        for edge in self.fleet.edges:
            mirrored += await read_ids(client, mirror_name(edge.name))
        sourced = await read_ids(client, FLEET_STREAM)
        lost, duplicated = compare(promised, mirrored)
        lost_fleet, duplicated_fleet = compare(promised, sourced)
        published = len(set(promised))
        return Verdict(
            published=published,
            mirrored=len(mirrored),
            aggregated=aggregated,
            lost=max(lost, lost_fleet, published - aggregated),
            duplicated=max(duplicated, duplicated_fleet, spark_duplicates),
        )

    async def stop(self) -> None:
        """Leave no process behind."""
        await asyncio.gather(*(agent.kill() for agent in self.agents))
        await self.fleet.stop()


def _names(edges: list[NodeProcess]) -> str:
    return " and ".join(edge.name for edge in edges)


def run_demo(
    *, messages: int, edges: int, output: str, seconds: float = 20.0, as_json: bool = False
) -> int:
    """Run the demo; returns the exit status, 0 only when nothing was lost or duplicated.

    Each edge takes about `seconds` to publish `messages`, so that there is something to watch.
    """
    if messages < 1 or edges < 1 or seconds <= 0:
        print("headwater demo: messages, edges and seconds must be positive", file=sys.stderr)
        return 2
    folder = Path(output).resolve()
    work = folder / "nodes"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if work.exists():
            shutil.rmtree(work)
        work.mkdir()
    except OSError as error:
        print(
            f"headwater demo: {reason(error)}: name another folder with --output", file=sys.stderr
        )
        return 2
    try:
        verdict = asyncio.run(_run(work, folder, messages, edges, seconds))
    except FleetError as error:
        print(f"headwater demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if as_json:
        print(json.dumps(verdict.__dict__))
    print(verdict.line(), flush=True)
    return 0 if verdict.good else 1


async def _run(
    work: Path, folder: Path, messages: int, edges: int, seconds: float
) -> Verdict:
    with Bars() as bars:
        story = Story(work, messages, edges, seconds, bars)
        try:
            await story.run()
            bars.say("Spark aggregates the fleet stream")
            result = await asyncio.to_thread(_aggregate, story.fleet.hub.urls, folder, bars)
            twice = result.duplicates + (result.duplicate_ids or 0)
            verdict = await story.verdict(result.rows, twice)
        finally:
            await story.stop()
    rows = read_rollup(folder / "rollup")
    print_table(rows, verdict)
    picture = folder / "rollup.png"
    print(f"plot of {plot(rows, picture)}: {picture}")
    return verdict


def _aggregate(urls: list[str], folder: Path, bars: Bars) -> "RollupResult":
    from headwater.spark.jobs.rollup import run_rollup

    return run_rollup(
        {"servers": ",".join(urls), "stream": FLEET_STREAM},
        str(folder / "rollup"),
        window="2s",
        overwrite=True,
        count_ids=True,
        progress=lambda step: bars.update(f"Spark: {step.phase}", step.done, step.total),
    )
