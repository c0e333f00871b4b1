"""One cluster, run by nats-servers and by this server with the same configuration, at once."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import nats
from nats.aio.client import Client

from bench.servers import free_port
from headwater.edge.conf.flags import parse_args
from headwater.edge.node.reload import reload_node
from tests.hub.lab import Lab
from tests.waiting import until

ANCHOR = Path(sys.executable).parent / "nats-server"
USERS = (
    "accounts { $SYS { users: [ { user: sys, password: sys } ] }\n"
    "  A { jetstream: enabled, users: [ { user: a, password: a } ] }\n"
    "  B { jetstream: enabled, users: [ { user: b, password: b } ] } }\n"
)
Configure = Callable[[str], str]
"""Makes the configuration of a node from its own part: its name, its ports, its store."""


@dataclass(frozen=True)
class Nodes:
    """A cluster that runs: the first node's port, how to stop the node of an index, how to have it
    load its configuration changed, and the monitoring ports of all nodes where a test wants
    them. `lab` has the nodes of this server."""

    port: int
    stop: Callable[[int], Awaitable[None]]
    reload: Callable[[int, Configure], Awaitable[None]]
    monitors: list[int] = field(default_factory=list)
    lab: Lab | None = None


BeginNodes = Callable[..., contextlib.AbstractAsyncContextManager[Nodes]]
_T = TypeVar("_T")


def with_users(own: str) -> str:
    """The configuration of a node with the users a, b and sys."""
    return own + USERS


def monitored(monitors: list[int]) -> Configure:
    """Nodes with users and monitoring ports, which are added to `monitors` in the nodes' order."""

    def configure(own: str) -> str:
        monitors.append(free_port())
        return with_users(f'{own}http: "127.0.0.1:{monitors[-1]}"\n')

    return configure


def write_configs(path: Path, size: int, configure: Configure) -> tuple[int, list[Path]]:
    """The first node's port, and the configuration of each node."""
    ports, route_ports = ([free_port() for _ in range(size)] for _ in range(2))
    routes = ", ".join(f"nats-route://127.0.0.1:{port}" for port in route_ports)
    configs = []
    for index in range(size):
        own = (
            f'server_name: n{index}\nlisten: "127.0.0.1:{ports[index]}"\n'
            f'server_tags: ["az:{index}", "all"]\n'
            f'jetstream {{ store_dir: "{path}/store{index}" }}\n'
            f'cluster {{ name: C, listen: "127.0.0.1:{route_ports[index]}", routes: [{routes}] }}\n'
        )
        configs.append(path / f"n{index}.conf")
        configs[-1].write_text(configure(own))
    return ports[0], configs


@contextlib.asynccontextmanager
async def their_nodes(
    path: Path, size: int = 3, configure: Configure = with_users
) -> AsyncIterator[Nodes]:
    """So many nats-servers."""
    path.mkdir()
    port, configs = write_configs(path, size, configure)
    log = path / "log"
    with log.open("w") as output:
        processes = [
            subprocess.Popen([str(ANCHOR), "-c", str(config)], stderr=output)
            for config in configs
        ]

    async def stop(index: int) -> None:
        processes[index].terminate()
        await asyncio.to_thread(processes[index].wait, 10)

    async def reload(index: int, change: Configure) -> None:
        done = "Reloaded server configuration"
        before = log.read_text().count(done)
        configs[index].write_text(change(configs[index].read_text()))
        processes[index].send_signal(signal.SIGHUP)
        await until(lambda: log.read_text().count(done) > before, f"n{index} has reloaded")

    try:
        yield Nodes(port, stop, reload)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            await asyncio.to_thread(process.wait, 10)


@contextlib.asynccontextmanager
async def our_nodes(
    path: Path, size: int = 3, configure: Configure = with_users
) -> AsyncIterator[Nodes]:
    """So many nodes of this server."""
    path.mkdir()
    port, configs = write_configs(path, size, configure)
    lab = Lab(path, size)

    async def reload(index: int, change: Configure) -> None:
        configs[index].write_text(change(configs[index].read_text()))
        node = lab.nodes[index]
        assert node is not None
        reload_node(node, parse_args(["-c", str(configs[index])]).options)

    try:
        for index, config in enumerate(configs):
            lab.run(index, parse_args(["-c", str(config)]).options)
        await lab.settled(size)
        yield Nodes(port, lab.stop_node, reload, lab=lab)
    finally:
        await lab.stop()


async def at_both(
    path: Path,
    work: Callable[[Nodes], Awaitable[_T]],
    size: int = 3,
    configure: Configure = with_users,
    monitoring: bool = False,
) -> list[_T]:
    """What `work` finds in the cluster of nats-servers, and then in ours.

    Both run at once, since most of their time is waiting for elections. `monitoring` gives the
    nodes monitoring ports, with the configuration `with_users`.
    """

    async def one(begin: BeginNodes) -> _T:
        monitors: list[int] = []
        made = monitored(monitors) if monitoring else configure
        async with begin(path / begin.__name__, size, made) as nodes:
            return await work(replace(nodes, monitors=monitors))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(begin)) for begin in (their_nodes, our_nodes)]
    return [task.result() for task in tasks]


@contextlib.asynccontextmanager
async def ours(path: Path, size: int = 3, configure: Configure = with_users) -> AsyncIterator[int]:
    """So many nodes of this server; the first one's port."""
    async with our_nodes(path, size, configure) as nodes:
        yield nodes.port


OWN = {"created", "ts", "time", "metadata", "first_ts", "last_ts", "last_active", "api"}


def masked(value: Any) -> Any:
    """Without what differs from run to run."""
    if isinstance(value, dict):
        return {key: "*" if key in OWN else masked(each) for key, each in value.items()}
    return [masked(each) for each in value] if isinstance(value, list) else value


async def led(user: Client) -> bool:
    """Whether the cluster answers."""
    with contextlib.suppress(nats.errors.Error):
        answer = await user.request("$JS.API.STREAM.NAMES", b"", timeout=2)
        return "error" not in json.loads(answer.data)
    return False
