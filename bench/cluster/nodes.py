"""Three servers as one cluster: processes that can be killed, paused and started again."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError

from bench.servers import HOST, Recipe, ServerFailed, anchor, free_port, headwater

READY_SECONDS = 40.0
"""Until a cluster must serve. The first meta leader of nats-servers takes some seconds."""
STOP_SECONDS = 10.0
POLL_SECONDS = 0.05
REQUEST_SECONDS = 3.0

SERVERS: dict[str, "ClusterRecipe"] = {}


@dataclass(frozen=True)
class ClusterRecipe:
    """How to make a node of a cluster: the server, and what its `jetstream` block says besides."""

    recipe: Recipe
    jetstream: str = ""
    synced: bool = False
    """It syncs each message before it acknowledges, one at a time."""

    @property
    def name(self) -> str:
        """For tables."""
        return self.recipe.name


SERVERS["headwater"] = ClusterRecipe(headwater())
SERVERS["real"] = ClusterRecipe(anchor())
SERVERS["real-synced"] = ClusterRecipe(
    Recipe("nats-server, sync always", anchor().command), "sync_interval: always", synced=True
)


class ClusterNodes:
    """A context manager that ends all nodes and removes what they stored.

    Node `i` is called `n{i}`; one node alone is no cluster. `more` is a further piece of every
    node's configuration.
    """

    def __init__(
        self, recipe: ClusterRecipe, size: int = 3, parent: Path | None = None, more: str = ""
    ) -> None:
        self.recipe = recipe
        self.size = size
        self.more = more
        self.hosts = [HOST] * size
        self.ports = [free_port() for _ in range(size)]
        self.route_ports = [free_port() for _ in range(size)]
        self.monitor_ports = [free_port() for _ in range(size)]
        self.leaf_ports = [free_port() for _ in range(size)]
        self.stores: dict[int, Path] = {}
        """Where nodes keep their data, of those that have a place of their own for it."""
        self.wrap: list[list[str]] = [[] for _ in range(size)]
        """Words before each node's command line."""
        self.path = Path(tempfile.mkdtemp(prefix="headwater-cluster-", dir=parent))
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- processes ------------------------------------------------------------

    def store(self, index: int) -> Path:
        """Where a node keeps its data."""
        return self.stores.get(index, self.path / f"n{index}")

    def log(self, index: int) -> str:
        """What a node has written to its log."""
        path = self.path / f"n{index}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def config(self, index: int) -> str:
        """A node's configuration file."""
        where = zip(self.hosts, self.route_ports, strict=True)
        routes = ", ".join(f"nats-route://{host}:{port}" for host, port in where)
        host = self.hosts[index]
        cluster = (
            f'cluster {{ name: C, listen: "{host}:{self.route_ports[index]}"\n'
            f" routes: [ {routes} ] }}\n"
        )
        return (
            f"server_name: n{index}\n"
            f'listen: "{host}:{self.ports[index]}"\n'
            f'http: "{host}:{self.monitor_ports[index]}"\n'
            f'server_tags: [ "az:{index}" ]\n'
            f'jetstream {{ store_dir: "{self.store(index)}", domain: hub\n'
            f" {self.recipe.jetstream} }}\n"
            f"{cluster if self.size > 1 else ''}"
            f'leafnodes {{ listen: "{host}:{self.leaf_ports[index]}" }}\n'
            f"{self.more}\n"
        )

    def start(self, index: int) -> None:
        """Launch one node on what is stored of it; does not wait."""
        path = self.path / f"n{index}.conf"
        path.write_text(self.config(index))
        command = [*self.wrap[index], *self.recipe.recipe.command, "-c", str(path)]
        with (self.path / f"n{index}.log").open("ab") as output:
            self.processes[index] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **dict(self.recipe.recipe.environment)},
            )

    def start_all(self) -> None:
        """Launch every node."""
        for index in range(self.size):
            self.start(index)

    def _process(self, index: int) -> "subprocess.Popen[bytes]":
        process = self.processes[index]
        if process is None:
            raise ServerFailed(f"n{index} does not run")
        return process

    def kill(self, index: int) -> None:
        """SIGKILL, then reap."""
        process = self._process(index)
        process.kill()
        process.wait()
        self.processes[index] = None

    def signal(self, index: int, number: signal.Signals) -> None:
        """Send a signal to a node."""
        self._process(index).send_signal(number)

    def stop(self, index: int) -> int:
        """SIGTERM; returns the exit status."""
        process = self._process(index)
        self.processes[index] = None
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def leave(self, index: int, seconds: float) -> None:
        """Lame duck; returns when the node has ended. Raises subprocess.TimeoutExpired."""
        process = self._process(index)
        process.send_signal(signal.SIGUSR2)
        process.wait(seconds)
        self.processes[index] = None

    def pid(self, index: int) -> int:
        """Process id of a node that runs."""
        return self._process(index).pid

    def wipe(self, index: int) -> None:
        """Remove what a node that does not run has stored."""
        shutil.rmtree(self.store(index), ignore_errors=True)

    def close(self) -> None:
        """End every node and remove everything."""
        running = [process for process in self.processes if process is not None]
        for process in running:
            process.kill()
            process.wait()
        shutil.rmtree(self.path, ignore_errors=True)

    def leaf(self) -> Recipe:
        """A node of a domain `edge` that is linked to the cluster; a server of the same kind."""
        where = zip(self.hosts, self.leaf_ports, strict=True)
        urls = ", ".join(f"nats-leaf://{host}:{port}" for host, port in where)
        text = (
            'server_name: edge\njetstream { store_dir: "{dir}", domain: edge }\n'
            f"leafnodes {{ reconnect: 1, remotes: [ {{ urls: [ {urls} ] }} ] }}\n"
        )
        return replace(self.recipe.recipe, config=text)

    # -- clients --------------------------------------------------------------

    def url(self, index: int) -> str:
        """Where clients of a node connect."""
        return f"nats://{self.hosts[index]}:{self.ports[index]}"

    async def client(self, first: int = 0, **options: Any) -> Client:
        """A client that goes to another node when its own is gone, `first` first."""
        urls = [self.url((first + offset) % self.size) for offset in range(self.size)]
        settings = {
            "dont_randomize": True,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": 0.1,
            "connect_timeout": 2,
            "allow_reconnect": True,
            "error_cb": _ignore,
        }
        client: Client = await nats.connect(urls, **{**settings, **options})
        return client

    async def ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until all nodes that run answer requests of the API."""
        async with asyncio.timeout(seconds):
            for index, process in enumerate(self.processes):
                if process is not None:
                    await self._ready(index)

    async def _ready(self, index: int) -> None:
        while True:
            with contextlib.suppress(OSError, NatsError, JetStreamError):
                client = await nats.connect(
                    self.url(index), allow_reconnect=False, error_cb=_ignore, connect_timeout=1
                )
                try:
                    answer = await ask(client, "INFO", seconds=1)
                    if "error" not in answer:
                        return
                finally:
                    await client.close()
            await asyncio.sleep(POLL_SECONDS)


async def _ignore(error: Exception) -> None:
    """A client that is cut off has errors."""


async def ask(
    client: Client, request: str, seconds: float = REQUEST_SECONDS, **body: Any
) -> dict[str, Any]:
    """One request of the API; an error is an answer."""
    payload = json.dumps(body).encode() if body else b""
    answer = await client.request(f"$JS.API.{request}", payload, timeout=seconds)
    found: dict[str, Any] = json.loads(answer.data)
    return found


async def insist(
    client: Client, request: str, seconds: float = READY_SECONDS, **body: Any
) -> dict[str, Any]:
    """Ask until an answer comes that is not for want of a leader."""
    async with asyncio.timeout(seconds):
        while True:
            with contextlib.suppress(NatsError):
                answer = await ask(client, request, **body)
                if answer.get("error", {}).get("code") != 503:
                    return answer
            await asyncio.sleep(POLL_SECONDS)


async def leader_of(client: Client, stream: str, seconds: float = READY_SECONDS) -> int:
    """Index of the node that leads a stream, once one does."""
    async with asyncio.timeout(seconds):
        while True:
            info = await insist(client, f"STREAM.INFO.{stream}")
            leader = info.get("cluster", {}).get("leader", "")
            if leader:
                return int(leader[1:])
            await asyncio.sleep(POLL_SECONDS)


async def whole(client: Client, stream: str, seconds: float = READY_SECONDS) -> int:
    """Wait until every replica of a stream has everything; returns who leads."""
    async with asyncio.timeout(seconds):
        while True:
            info = await insist(client, f"STREAM.INFO.{stream}")
            place = info.get("cluster", {})
            rows = place.get("replicas", [])
            if place.get("leader") and rows and all(row["current"] for row in rows):
                return int(place["leader"][1:])
            await asyncio.sleep(POLL_SECONDS)
