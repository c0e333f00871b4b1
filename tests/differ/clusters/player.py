"""Plays a history on two clusters at once, and compares what comes of each step."""

import asyncio
import contextlib
import json
import re
from typing import Any

from tests.differ.clusters.intended import PASSING, intended
from tests.differ.histories import Step
from tests.differ.player import QUIET_S, READS, Player, Side, sorted_by_inbox

STEADY_S = 12.0
"""So long both clusters may take to do what was asked of them."""

ANSWER_S = 5.0
"""So long an answer may take."""

AGAIN_S = 4.0
"""So long the same request may be answered differently: replicas and leaders hear of it later."""

POLL_S = 0.1
CLEARED = 20
"""So often it is looked whether there are streams left."""

NOT_FOUND = 10059
WATCHED = ("STREAM.INFO", "CONSUMER.LIST")
LATER = {"api", "last_active"}
"""What nodes hear of each other now and then, as what is used. Some goes with replicas."""

BEATS = re.compile("100 (Idle Heartbeat|FlowControl Request)")
MADE = re.compile(r"(create|update)_response$")
"""Answers that come before all replicas have what was asked for: how far they are is chance."""


class ClusterSide(Side):
    """One cluster's connection of one history."""

    def lines(self) -> list[str]:
        return [unplaced(line) for line in super().lines() if not BEATS.search(line)]


def unplaced(line: str) -> str:
    """An answer without who it is that leads and follows, which each cluster chooses."""
    at = line.find("{", line.find("] "))
    if at < 0:
        return line
    try:
        told = json.loads(line[at:])
    except ValueError:
        return line
    return line[:at] + json.dumps(_anonymous(told), sort_keys=True)


def _anonymous(value: Any) -> Any:
    if isinstance(value, list):
        return [_anonymous(each) for each in value]
    if not isinstance(value, dict):
        return value
    used = {key for key in ("memory", "storage") if isinstance(value.get(key), int)}
    found = {key: _anonymous(each) for key, each in value.items() if key not in LATER | used}
    if "description" in found:
        # The tags that were not matched stand in no order.
        found["description"] = " ".join(sorted(re.split(r"[\[\] ,]+", found["description"])))
    cluster = found.pop("cluster", None)
    made = MADE.search(str(value.get("type")))
    if made and isinstance(value.get("state"), dict):
        found["state"] = {**found["state"], "consumer_count": 0}
    if isinstance(cluster, dict) and not made:
        replicas = value["cluster"].get("replicas") or ()
        if "stream_name" in value and value["config"].get("num_replicas") == 2:
            # By intention, see `intended.CLUSTERS`: more replicas.
            replicas = replicas[:1]
        found["cluster"] = {
            "keys": sorted(cluster), "replicas": len(replicas),
            "offline": sum(bool(each.get("offline")) for each in replicas),
        }  # fmt: skip
    return found


class ClusterPlayer(Player):
    """One history on two clusters, in an account alone."""

    def __init__(self, ports: tuple[int, int], login: str) -> None:
        super().__init__(ports, login)
        self.sides = [ClusterSide(self.name, login) for _ in ports]
        self.system = [ClusterSide(self.name, "sys") for _ in ports]
        self.watching = [Side(f"W{self.name}", login) for _ in ports]
        """They ask whether all is done: late answers are in nobody's way."""

    async def play(self, steps: list[Step]) -> tuple[int, Any, Any] | None:
        """The first step of which something else came, with what came on both sides."""
        everybody = (self.sides, self.system, self.watching)
        for sides in everybody:
            for side, port in zip(sides, self.ports, strict=True):
                await side.open(port)
        try:
            await self.clear()
            for number, step in enumerate(steps):
                unlike = await self.done(step)
                if unlike is not None and not self.passes(steps, number, *unlike):
                    return number, *unlike
            return None
        finally:
            await self.clear()
            for side in (side for sides in everybody for side in sides):
                await side.close()

    def passes(self, steps: list[Step], number: int, ours: Any, theirs: Any) -> bool:
        """Whether that is a difference by intention behind which both are as they were."""
        return intended(steps, number, ours, theirs) in PASSING

    async def done(self, step: Step) -> tuple[Any, Any] | None:
        """Do a step; what came on both sides when it differs."""
        loop = asyncio.get_running_loop()
        end = loop.time() + AGAIN_S
        while True:
            await self.do(step)
            if self.unlike():
                await asyncio.sleep(POLL_S)
                await self.settle(0)
            ours, theirs = (sorted_by_inbox(side.take()) for side in self.sides)
            if ours == theirs:
                return None
            if not READS.search(step.get("subject", "")) or loop.time() > end:
                return ours, theirs
            await asyncio.sleep(POLL_S)

    async def do(self, step: Step) -> None:
        """Do one step on both sides."""
        if step["do"] == "steady":
            await self.steady()
        elif step.get("sys"):
            usual, self.sides = self.sides, self.system
            try:
                await super().do(step)
            finally:
                self.sides = usual
            for side, system in zip(self.sides, self.system, strict=True):
                side.seen += system.seen
                system.seen = []
        else:
            await super().do(step)

    def own(self, text: str) -> str:
        return super().own(text).replace("@", f"A{self.sides[0].login[1:]}")

    async def steady(self) -> None:
        """Wait until each side's stream and consumers are led, and their replicas have all."""
        async with asyncio.TaskGroup() as group:
            for side in self.watching:
                group.create_task(self.rested(side))
        await self.settle(0)

    async def rested(self, side: Side) -> None:
        """Wait until one cluster has done what was asked of it, or it is too late."""
        loop = asyncio.get_running_loop()
        end = loop.time() + STEADY_S
        while loop.time() < end:
            told = [await self.told(side, f"{name}.{self.name}") for name in WATCHED]
            if all(map(at_rest, told)):
                return
            await asyncio.sleep(POLL_S)

    async def told(self, side: Side, name: str) -> bytes:
        """What a cluster answers to a question; empty when it says nothing."""
        side.seen = []
        inbox = f"{side.name}i.{next(self.asked)}"
        side.publish(f"$JS.API.{name}", inbox, b"", [])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                while True:
                    for frame in side.seen:
                        if frame.words[0] == inbox:
                            return frame.payload
                    side.heard.clear()
                    await side.heard.wait()
        return b""

    async def clear(self) -> None:
        """Delete every stream that there is."""
        for side in self.watching:
            for _ in range(CLEARED):
                answer = await self.told(side, "STREAM.NAMES")
                names = (json.loads(answer or b"{}").get("streams") or []) if answer else [""]
                if not names:
                    break
                for name in filter(None, names):
                    await self.told(side, f"STREAM.DELETE.{name}")

    async def settle(self, least: int) -> None:
        """Wait until both sides have said as much, `least` things at least, and are quiet."""
        loop = asyncio.get_running_loop()
        end = loop.time() + ANSWER_S
        while loop.time() < end:
            counts = [len(side.seen) for side in self.sides]
            enough = counts[0] == counts[1] and counts[0] >= least
            for side in self.sides:
                side.heard.clear()
            waits = [asyncio.create_task(side.heard.wait()) for side in self.sides]
            done, waiting = await asyncio.wait(
                waits, timeout=QUIET_S if enough else 0.5, return_when=asyncio.FIRST_COMPLETED
            )
            for task in waiting:
                task.cancel()
            if not done and (enough or not least):
                return


def at_rest(answer: bytes) -> bool:
    """Whether what was told of a stream or its consumers is final."""
    told = json.loads(answer) if answer else {"error": {"err_code": 0}}
    if "error" in told:
        return bool(told["error"].get("err_code") == NOT_FOUND)
    for asset in [told, *(told.get("consumers") or [])]:
        cluster = asset.get("cluster")
        if cluster is None:
            continue
        others = cluster.get("replicas") or []
        wanted = asset.get("config", {}).get("num_replicas") or len(others) + 1
        if not cluster.get("leader") or len(others) + 1 != wanted or "desired" in cluster:
            return False
        if not all(each.get("current") for each in others):
            return False
    return True
