"""Upgrades in batches: one gateway first, then 5 %, 25 % and the rest, as long as all goes well."""

import math
from collections.abc import Awaitable, Callable, Sequence

from headwater.deploy.fleet.flash.inventory import Host
from headwater.deploy.fleet.flash.results import GOOD, UNREACHABLE, HostResult

SHARES = (0.0, 0.05, 0.25, 1.0)
"""Of all gateways, how many are done after each batch; the first batch is one."""

Batch = Callable[[Sequence[Host]], Awaitable[list[HostResult]]]


def batches(count: int) -> list[int]:
    """Sizes of the batches for so many hosts."""
    ends = sorted({min(count, max(1, math.ceil(count * share))) for share in SHARES} - {0})
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


class Rollout:
    """Goes on to the next batch while no more than `tolerance` of those done so far failed.

    Gateways that cannot be reached do not count as failures of the new version: they say nothing
    about it.
    """

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self.paused = ""
        """Why it stopped; empty when it went through."""

    async def run(
        self, hosts: Sequence[Host], batch: Batch, stopped: Callable[[], bool]
    ) -> list[HostResult]:
        """Results of all hosts, also of those that were not begun."""
        results: list[HostResult] = []
        begin = 0
        for size in batches(len(hosts)):
            results += await batch(hosts[begin : begin + size])
            begin += size
            if begin < len(hosts) and (stopped() or self._too_many(results)):
                break
        left = hosts[begin:]
        if left and not stopped():
            bad = sum(_bad(result) for result in results)
            self.paused = (
                f"paused: {bad} of {len(results)} gateways did not take the new version, "
                f"{len(left)} were not begun; look at those, then run the same command again"
            )
        text = "not begun: the rollout was paused"
        return results + [HostResult(name=host.name, phase="plan", error=text) for host in left]

    def _too_many(self, results: Sequence[HostResult]) -> bool:
        reached = [result for result in results if result.state != UNREACHABLE]
        bad = sum(_bad(result) for result in reached)
        return not reached or bad > self.tolerance * len(reached)


def _bad(result: HostResult) -> bool:
    return result.state not in GOOD and result.state != UNREACHABLE
