"""Histories in clusters of three, many beside each other."""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

from tests.differ.clusters.intended import intended
from tests.differ.clusters.player import ClusterPlayer
from tests.differ.clusters.steps import cluster_history
from tests.differ.clusters.trio import SIZE, Trio
from tests.differ.histories import Step
from tests.differ.series import Histories

SMALL_S = 120.0
"""So long it is tried to do without steps: each try waits for elections."""


class ClusterHistories(Histories):
    """Plays histories on two clusters, at one node of each."""

    def __init__(self, ports: list[tuple[int, int]]) -> None:
        super().__init__(cluster_history, ports[0], True)
        self.nodes = ports

    async def played(
        self, steps: list[Step], login: str = ""
    ) -> tuple[int, Any, Any] | None:
        login = login or self.logins[0]
        ports = self.nodes[len(steps) % SIZE]
        result = await ClusterPlayer(ports, login).play(steps)
        return None if result is not None and intended(steps, *result) else result

    async def small(self, steps: list[Step]) -> list[Step]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SMALL_S):
                return await super().small(steps)
        return steps


def clusters(seeds: Iterable[int], most: int) -> tuple[list[str], int]:
    """Differences between both clusters, and how many steps were tried."""
    with Trio() as trio:
        series = ClusterHistories(trio.ports)
        return asyncio.run(series.compared(list(seeds), most)), series.tried
