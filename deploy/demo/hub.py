"""The demo's hub: three nodes on loopback that are one cluster, found under one name."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import StreamConfig
from nats.js.errors import APIError

from headwater.deploy.demo.processes import FleetError, NodeProcess, free_ports

Found = TypeVar("Found")

NODES = 3
FORMED_WITHIN_S = 30.0
REQUEST_S = 1.0
RETRY_S = 0.1

CONFIG = """\
listen: 127.0.0.1:{port}
server_name: {name}
jetstream {{ store_dir: "{store}", domain: hub }}
cluster {{
  name: hub
  listen: 127.0.0.1:{route_port}
  authorization {{ user: hub, password: "{route_password}" }}
  routes: [ {routes} ]
}}
leafnodes {{
  listen: 127.0.0.1:{leaf_port}
  authorization {{ user: edge, password: "{leaf_password}" }}
}}
headwater {{ discovery: {{ cluster: "{label}" }} }}
"""


class Hub:
    """Three nodes. `label` is what edges look for, `leaf_password` what they log in with."""

    def __init__(self, folder: Path) -> None:
        self.label = f"demo-{secrets.token_hex(4)}"
        self.leaf_password = secrets.token_urlsafe(16)
        self._route_password = secrets.token_urlsafe(16)
        self._folder = folder
        ports = free_ports(NODES * 3)
        self.nodes = [
            NodeProcess(f"hub-{number + 1}", folder, ports[number]) for number in range(NODES)
        ]
        self._route_ports = ports[NODES : 2 * NODES]
        self._leaf_ports = ports[2 * NODES :]
        self._client: Client | None = None

    @property
    def urls(self) -> list[str]:
        """Addresses for clients."""
        return [node.url for node in self.nodes]

    @property
    def client(self) -> Client:
        """Connected to a node that runs, after `start`."""
        assert self._client is not None, "the hub was not started"
        return self._client

    async def start(self) -> None:
        """Start all nodes, and wait until they are one JetStream. Raises FleetError."""
        routes = ", ".join(
            f'"nats-route://hub:{self._route_password}@127.0.0.1:{port}"'
            for port in self._route_ports
        )
        for number, node in enumerate(self.nodes):
            node.configure(
                CONFIG.format(
                    name=node.name,
                    port=node.port,
                    route_port=self._route_ports[number],
                    leaf_port=self._leaf_ports[number],
                    store=self._folder / node.name,
                    routes=routes,
                    route_password=self._route_password,
                    leaf_password=self.leaf_password,
                    label=self.label,
                )
            )
        await asyncio.gather(*(node.start() for node in self.nodes))
        self._client = await nats.connect(
            self.urls,
            name="demo",
            error_cb=_quiet,
            max_reconnect_attempts=-1,
            reconnect_time_wait=RETRY_S,
        )

    async def make_stream(self, config: StreamConfig) -> None:
        """Make a stream with a replica on each node. A cluster that has just begun refuses that
        until it knows all its nodes, so it is asked again. Raises FleetError."""
        config.num_replicas = NODES
        await self._insist(
            lambda: self.client.jetstream().add_stream(config), f"did not make {config.name}"
        )

    async def held(self, stream: str) -> int | None:
        """Messages that a stream holds; None while nobody answers for it."""
        try:
            info = await self.client.jetstream().stream_info(stream)
        except (APIError, NatsError):
            return None
        return int(info.state.messages)

    async def leader(self, stream: str) -> NodeProcess:
        """The node that leads a stream. Raises FleetError."""
        return await self._insist(lambda: self._leader(stream), f"has no leader for {stream}")

    async def _leader(self, stream: str) -> NodeProcess | None:
        info = await self.client.jetstream().stream_info(stream)
        name = "" if info.cluster is None else info.cluster.leader
        return next((node for node in self.nodes if node.name == name), None)

    async def _insist(self, ask: Callable[[], Awaitable[Found | None]], failure: str) -> Found:
        """Ask until there is an answer that is no error. Raises FleetError."""
        deadline = asyncio.get_running_loop().time() + FORMED_WITHIN_S
        while True:
            error: Exception | None = None
            try:
                found = await ask()
                if found is not None:
                    return found
            except (APIError, NatsError) as caught:
                error = caught
            if asyncio.get_running_loop().time() > deadline:
                why = f" ({error})" if error else ""
                raise FleetError(f"the hub {failure}{why}; see {self._folder}/hub-*.log")
            await asyncio.sleep(RETRY_S)

    async def stop(self) -> None:
        """End everything."""
        if self._client is not None:
            await self._client.close()
        await asyncio.gather(*(node.stop() for node in self.nodes))


async def _quiet(error: Exception) -> None:
    """Kills are the point of the demo; their effects show in the result."""
