"""The commands that go over an inventory: `flash`, `upgrade`, `rollback` and `ls`."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from headwater.deploy.fleet.flash.board import PhaseBoard
from headwater.deploy.fleet.flash.fleet_run import Interrupted, Job, run_all
from headwater.deploy.fleet.flash.inventory import Host, Inventory, chosen, load
from headwater.deploy.fleet.flash.links import KnownHosts, cache_folder
from headwater.deploy.fleet.flash.plan import LocalBundle, local_bundles
from headwater.deploy.fleet.flash.results import (
    HostResult,
    RunLog,
    as_json,
    exit_status,
    recap,
)
from headwater.deploy.fleet.flash.rollout import Rollout
from headwater.deploy.fleet.flash.task import Task
from headwater.deploy.fleet.pyz import agent_file

KNOWN_SUFFIX = ".known_hosts"


class Request(NamedTuple):
    """What the command line asks for."""

    file: Path
    limit: tuple[str, ...]
    concurrency: int
    uploads: int
    as_json: bool
    accept_new: bool
    dry_run: bool = False
    one_way: bool = False
    set_clock: bool = False
    bundle: str = ""


class Prepared(NamedTuple):
    """An inventory, the hosts in question, and what the run needs."""

    inventory: Inventory
    hosts: list[Host]
    bundles: Sequence[LocalBundle]
    log: RunLog


def prepare(request: Request, with_bundles: bool) -> Prepared:
    """Read everything that is here. Raises InventoryError and BundleError."""
    inventory = load(request.file)
    if request.bundle:
        inventory.fleet.bundle = str(Path(request.bundle).resolve())
    log = RunLog(cache_folder(), request.file)
    hosts = chosen(inventory.host, request.limit, log.failed())
    bundles = local_bundles(inventory) if with_bundles else []
    if bundles and not inventory.keys() and not request.as_json:
        click.echo(
            f'[fleet] has no bundle_key: gateways will pin {bundles[0].key}, which signed '
            f"{bundles[0].path.name}", err=True,
        )  # fmt: skip
    return Prepared(inventory, hosts, bundles, log)


def task_of(request: Request, prepared: Prepared, board: PhaseBoard) -> Task:
    """The shared part of a run."""
    known = KnownHosts(request.file.with_name(request.file.name + KNOWN_SUFFIX))
    return Task(
        inventory=prepared.inventory, bundles=prepared.bundles, known=known, board=board,
        agent=agent_file(), uploads=asyncio.Semaphore(request.uploads),
        accept_new=request.accept_new, dry_run=request.dry_run, one_way=request.one_way,
        set_clock=request.set_clock,
    )  # fmt: skip


def carry_out(
    request: Request, job: Job, again: str, with_bundles: bool = True,
    rollout: "Callable[[], Rollout] | None" = None,
) -> int:  # fmt: skip
    """Do a job on all chosen hosts, and tell of it; returns the exit status."""
    prepared = prepare(request, with_bundles)
    results, interrupted, paused = asyncio.run(_run(request, prepared, job, rollout))
    prepared.log.keep(results)
    if request.as_json:
        click.echo(as_json(results, prepared.inventory.fleet.name))
    else:
        command = f"headwater fleet {again} -f {request.file}"
        for line in recap(results, prepared.log.path, command):
            click.echo(line)
    if paused:
        click.echo(paused, err=True)
    if interrupted:
        click.echo("interrupted: every gateway runs what it ran, or decides by itself", err=True)
    return exit_status(results, interrupted)


async def _run(
    request: Request, prepared: Prepared, job: Job, rollout: "Callable[[], Rollout] | None"
) -> tuple[list[HostResult], bool, str]:
    quiet = request.as_json and not sys.stderr.isatty()
    interrupted = Interrupted()
    if not prepared.hosts:
        return [], False, ""
    with PhaseBoard(len(prepared.hosts), quiet) as board:
        task = task_of(request, prepared, board)

        async def batch(hosts: Sequence[Host]) -> list[HostResult]:
            return await run_all(task, hosts, job, request.concurrency, interrupted)

        if rollout is None:
            return await batch(prepared.hosts), interrupted.came, ""
        made = rollout()
        results = await made.run(prepared.hosts, batch, lambda: interrupted.came)
        return results, interrupted.came, made.paused


class Seen(NamedTuple):
    """What a look at the gateways showed."""

    hosts: list[Host]
    results: list[HostResult]
    facts: dict[str, Any]
    logs: dict[str, str]
    interrupted: bool
    """Then some were not looked at to the end."""


def look_at(request: Request, job: Job, with_logs: bool = False) -> Seen:
    """Look at all chosen hosts, and change nothing."""
    prepared = prepare(request, False)
    interrupted = Interrupted()

    async def look() -> Seen:
        with PhaseBoard(len(prepared.hosts), quiet=True) as board:
            task = task_of(request, prepared, board)
            task.with_logs = with_logs
            found = await run_all(task, prepared.hosts, job, request.concurrency, interrupted)
            return Seen(prepared.hosts, found, task.seen, task.logs, interrupted.came)

    return asyncio.run(look())
