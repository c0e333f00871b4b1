"""The demo's topology: a hub, edges that find it by zeroconf, mirrors and a fleet stream."""

import asyncio
from pathlib import Path
from typing import Any

import nats
from nats.errors import Error as NatsError
from nats.js.api import ExternalStream, StorageType, StreamConfig, StreamSource

from headwater.deploy.demo.agent import STREAM
from headwater.deploy.demo.hub import Hub
from headwater.deploy.demo.processes import FleetError, NodeProcess, free_ports
from headwater.deploy.demo.uplink import Uplink

LINKED_WITHIN_S = 20.0
FLEET_STREAM = "FLEET"

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
    """The hub and its edges, all on loopback."""

    def __init__(self, folder: Path, edges: int) -> None:
        self.folder = folder
        self.hub = Hub(folder)
        self.edges = [
            NodeProcess(f"edge-{number + 1}", folder, port)
            for number, port in enumerate(free_ports(edges))
        ]
        ports = zip(self.edges, free_ports(edges), strict=True)
        self.uplinks = {edge.name: Uplink(port) for edge, port in ports}

    async def start(self) -> None:
        """Start every node, and wait until every edge is linked. Raises FleetError."""
        await self.hub.start()
        for edge in self.edges:
            uplink = self.uplinks[edge.name]
            await uplink.start()
            edge.configure(
                EDGE_CONFIG.format(
                    name=edge.name,
                    port=edge.port,
                    store=self.folder / edge.name,
                    password=self.hub.leaf_password,
                    label=self.hub.label,
                    proxy_port=uplink.port,
                )
            )
        await asyncio.gather(*(edge.start() for edge in self.edges))
        await asyncio.gather(*(self._linked(edge) for edge in self.edges))

    async def _linked(self, edge: NodeProcess) -> None:
        """The hub reaches the edge's JetStream: discovery, login and interest all worked."""
        deadline = asyncio.get_running_loop().time() + LINKED_WITHIN_S
        while True:
            try:
                await self.hub.client.request(f"$JS.{edge.name}.API.INFO", timeout=0.5)
                return
            except NatsError:
                if asyncio.get_running_loop().time() > deadline:
                    raise FleetError(
                        f"{edge.name} did not find the hub, or could not log in; see {edge.log}"
                    ) from None
                await asyncio.sleep(0.1)

    async def make_streams(self) -> None:
        """A stream on every edge, its mirror on the hub, and one stream that sources them all."""
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
        sources = []
        for edge in self.edges:
            external = ExternalStream(api=f"$JS.{edge.name}.API")
            await self.hub.make_stream(
                StreamConfig(
                    name=mirror_name(edge.name),
                    mirror=StreamSource(name=STREAM, external=external),
                    storage=StorageType.FILE,
                )
            )
            sources.append(StreamSource(name=STREAM, external=external))
        await self.hub.make_stream(
            StreamConfig(name=FLEET_STREAM, sources=sources, storage=StorageType.FILE)
        )

    async def mirrored(self) -> int | None:
        """Messages in all mirrors; None while nobody answers for one."""
        total = 0
        for edge in self.edges:
            held = await self.hub.held(mirror_name(edge.name))
            if held is None:
                return None
            total += held
        return total

    async def sourced(self) -> int | None:
        """Messages in the fleet's stream; None while nobody answers for it."""
        return await self.hub.held(FLEET_STREAM)

    async def stop(self) -> None:
        """End everything."""
        for uplink in self.uplinks.values():
            await uplink.stop()
        await asyncio.gather(self.hub.stop(), *(edge.stop() for edge in self.edges))


def mirror_name(edge: str) -> str:
    """Name of the hub's mirror of one edge."""
    return "MIRROR_" + edge.replace("-", "_").upper()


async def _quiet(error: Exception) -> Any:
    """Cuts and crashes are the point of the demo; their effects show in the result."""
