"""The demo's topology: one hub, edges that find it by zeroconf, mirrors and a fleet stream."""

import asyncio
import secrets
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import ExternalStream, StorageType, StreamConfig, StreamSource

from headwater.deploy.demo.agent import STREAM
from headwater.deploy.demo.processes import FleetError, NodeProcess, free_ports
from headwater.deploy.demo.uplink import Uplink

LINKED_WITHIN_S = 20.0
FLEET_STREAM = "FLEET"

HUB_CONFIG = """\
listen: 127.0.0.1:{port}
server_name: hub
jetstream {{ store_dir: "{store}", domain: hub }}
leafnodes {{
  listen: 127.0.0.1:{leaf_port}
  authorization {{ user: edge, password: "{password}" }}
}}
headwater {{ discovery: {{ cluster: "{label}" }} }}
"""

EDGE_CONFIG = """\
listen: 127.0.0.1:{port}
server_name: {name}
jetstream {{ store_dir: "{store}", domain: {name} }}
leafnodes {{
  reconnect: "500ms"
  remotes: [ {{
    url: "discover://edge:{password}@{label}"
    # Nobody else answers on this machine's own interface.
    insecure_discovery: true
    proxy: {{ url: "http://127.0.0.1:{proxy_port}", timeout: 5 }}
  }} ]
}}
"""


class Fleet:
    """One hub and its edges, all on loopback."""

    def __init__(self, folder: Path, edges: int) -> None:
        self.folder = folder
        ports = free_ports(edges + 2)
        self.hub = NodeProcess("hub", folder, ports[0])
        self.edges = [
            NodeProcess(f"edge-{number + 1}", folder, ports[number + 2])
            for number in range(edges)
        ]
        self.uplinks = {edge.name: Uplink() for edge in self.edges}
        self._leaf_port = ports[1]
        self._password = secrets.token_urlsafe(16)
        self._label = f"demo-{secrets.token_hex(4)}"
        self.client: Client | None = None

    async def start(self) -> None:
        """Start every node, and wait until every edge is linked. Raises FleetError."""
        self.hub.configure(
            HUB_CONFIG.format(
                port=self.hub.port,
                leaf_port=self._leaf_port,
                store=self.folder / "hub",
                password=self._password,
                label=self._label,
            )
        )
        await self.hub.start()
        for edge in self.edges:
            uplink = self.uplinks[edge.name]
            await uplink.start()
            edge.configure(
                EDGE_CONFIG.format(
                    name=edge.name,
                    port=edge.port,
                    store=self.folder / edge.name,
                    password=self._password,
                    label=self._label,
                    proxy_port=uplink.port,
                )
            )
        await asyncio.gather(*(edge.start() for edge in self.edges))
        self.client = await nats.connect(self.hub.url, name="demo", error_cb=_quiet)
        await asyncio.gather(*(self._linked(edge) for edge in self.edges))

    async def _linked(self, edge: NodeProcess) -> None:
        """The hub reaches the edge's JetStream: discovery, login and interest all worked."""
        assert self.client is not None
        deadline = asyncio.get_running_loop().time() + LINKED_WITHIN_S
        while True:
            try:
                await self.client.request(f"$JS.{edge.name}.API.INFO", timeout=0.5)
                return
            except NatsError:
                if asyncio.get_running_loop().time() > deadline:
                    raise FleetError(
                        f"{edge.name} did not find the hub, or could not log in; see {edge.log}"
                    ) from None
                await asyncio.sleep(0.1)

    async def make_streams(self) -> None:
        """A stream on every edge, its mirror on the hub, and one stream that sources them all."""
        assert self.client is not None
        for edge in self.edges:
            local = await nats.connect(edge.url, name="demo", error_cb=_quiet)
            await local.jetstream().add_stream(
                StreamConfig(
                    # Its own branch only: interest crosses leaf links, and with `telemetry.>`
                    # every edge would also store what the others publish.
                    name=STREAM,
                    subjects=[f"telemetry.{edge.name}.>"],
                    storage=StorageType.FILE,
                    max_bytes=2**31,
                )
            )
            await local.close()
        hub = self.client.jetstream()
        sources = []
        for edge in self.edges:
            external = ExternalStream(api=f"$JS.{edge.name}.API")
            await hub.add_stream(
                StreamConfig(
                    name=mirror_name(edge.name),
                    mirror=StreamSource(name=STREAM, external=external),
                    storage=StorageType.FILE,
                )
            )
            sources.append(StreamSource(name=STREAM, external=external))
        await hub.add_stream(
            StreamConfig(name=FLEET_STREAM, sources=sources, storage=StorageType.FILE)
        )

    async def held(self, stream: str) -> int:
        """Messages that a stream of the hub holds now."""
        assert self.client is not None
        info = await self.client.jetstream().stream_info(stream)
        return int(info.state.messages)

    async def mirrored(self) -> int:
        """Messages in all mirrors."""
        counts = [await self.held(mirror_name(edge.name)) for edge in self.edges]
        return sum(counts)

    async def stop(self) -> None:
        """End everything."""
        if self.client is not None:
            await self.client.close()
        for uplink in self.uplinks.values():
            await uplink.stop()
        await asyncio.gather(*(node.stop() for node in [*self.edges, self.hub]))


def mirror_name(edge: str) -> str:
    """Name of the hub's mirror of one edge."""
    return "MIRROR_" + edge.replace("-", "_").upper()


async def _quiet(error: Exception) -> Any:
    """Cuts and crashes are the point of the demo; their effects show in the result."""
