"""Runs a job on many gateways at once, so that none can hold up or stop another."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from typing import Any

from headwater.deploy.fleet.flash.host_run import HostRun
from headwater.deploy.fleet.flash.inventory import Host
from headwater.deploy.fleet.flash.results import HostResult
from headwater.deploy.fleet.flash.task import Task

Job = Callable[[HostRun, Any], Any]


class Interrupted:
    """Whether SIGINT or SIGTERM came; cancels what is under way then."""

    def __init__(self) -> None:
        self.came = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def watch(self, tasks: Sequence["asyncio.Task[Any]"]) -> None:
        """Cancel these when a signal comes."""
        self._tasks = set(tasks)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        self.came = True
        for task in self._tasks:
            task.cancel()


async def run_all(
    task: Task, hosts: Sequence[Host], job: Job, concurrency: int, interrupted: Interrupted
) -> list[HostResult]:
    """A result for each host, in order; those that a signal ended say so."""
    slots = asyncio.Semaphore(concurrency)
    runs = [HostRun(task, host) for host in hosts]

    async def one(run: HostRun) -> None:
        async with slots:
            await run.run(job)

    tasks = [asyncio.create_task(one(run)) for run in runs]
    interrupted.watch(tasks)
    for each in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await each
    return [_closed(run.result) for run in runs]


def _closed(result: HostResult) -> HostResult:
    if not result.error and result.state == "failed":
        result.error = "interrupted before it began"
    return result
