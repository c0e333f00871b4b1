"""Three nodes with JetStream in one process, on loopback."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client

from headwater.deploy.compose import services_for
from headwater.edge.conf.options import ClusterOptions, JetStreamOptions, Options
from headwater.edge.node.node import Node
from headwater.hub.api.cluster import Cluster
from headwater.hub.node.service import ClusterService
from tests.hub.routes.test_routes import free_port
from tests.waiting import until


class Lab:
    """A cluster whose nodes can be killed and started again. `fields` are options of all, `routing`
    those of their `cluster` block."""

    def __init__(
        self,
        directory: Path,
        size: int = 3,
        routing: dict[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        self.routing = routing or {}
        self.directory = directory
        self.clients: list[Client] = []
        self.fields = fields
        self._lay_out(size)

    def _lay_out(self, size: int) -> None:
        self.ports = [free_port() for _ in range(size)]
        self.routes = [f"nats-route://127.0.0.1:{port}" for port in self.ports]
        self.nodes: list[Node | None] = [None] * size

    def start(self, index: int, **fields: Any) -> Node:
        """Start one node, on what is stored of it."""
        options = Options(
            host="127.0.0.1",
            port=-1,
            server_name=f"n{index}",
            server_tags=[f"az:{index}", "all"],
            jetstream=JetStreamOptions(enabled=True, store_dir=str(self.directory / f"n{index}")),
            cluster=ClusterOptions(
                name="C",
                host="127.0.0.1",
                port=self.ports[index],
                routes=self.routes,
                **self.routing,
            ),
            **{**self.fields, **fields},
        )
        return self.run(index, options)

    def run(self, index: int, options: Options) -> Node:
        """Start one node with any options."""
        node = Node(options, asyncio.get_running_loop())
        node.services.extend(services_for(options))
        node.start()
        self.nodes[index] = node
        return node

    async def resized(self, size: int) -> "Lab":
        """End all nodes, and form a cluster of so many in the same directory."""
        await self.stop()
        self.clients = []
        self._lay_out(size)
        await self.formed()
        return self

    async def formed(self) -> None:
        """Start all nodes, and wait until they are one cluster."""
        for index in range(len(self.nodes)):
            self.start(index)
        await self.settled(len(self.nodes))

    async def settled(self, size: int) -> None:
        """Wait until the running nodes agree on a leader, and that many are members."""
        await until(lambda: self.leader() is not None)
        await until(
            lambda: all(
                c.group.raft is not None
                and len(c.group.raft.log.config.voters) == size
                and c.group.leader
                for c in self.clusters()
            )
        )
        running = {f"n{i}" for i, node in enumerate(self.nodes) if node is not None}
        await until(lambda: running <= self.places())

    def places(self) -> set[str]:
        """Names of the nodes that the leader would put a stream on."""
        index = self.leader()
        if index is None:
            return set()
        return {node.name for node in self.cluster(index).candidates() if node.online}

    def service(self, index: int) -> ClusterService:
        """A node's part of the cluster."""
        node = self.nodes[index]
        assert node is not None
        return next(s for s in node.services if isinstance(s, ClusterService))

    def cluster(self, index: int) -> Cluster:
        """What a node knows of the cluster."""
        cluster = self.service(index).cluster
        assert cluster is not None
        return cluster

    def clusters(self) -> list[Cluster]:
        """Of every node that runs."""
        return [self.cluster(i) for i, node in enumerate(self.nodes) if node is not None]

    def leader(self) -> int | None:
        """Index of the node that leads the meta group."""
        for index, node in enumerate(self.nodes):
            if node is not None and self.cluster(index).group.serves:
                return index
        return None

    async def connect(self, index: int, **options: Any) -> Client:
        """A client of one node."""
        node = self.nodes[index]
        assert node is not None
        url = node.ports()["nats"][0]
        client: Client = await nats.connect(url, allow_reconnect=False, **options)
        self.clients.append(client)
        return client

    async def stop_node(self, index: int) -> None:
        """An orderly stop of one node."""
        node = self.nodes[index]
        assert node is not None
        self.nodes[index] = None
        await node.stop()

    async def stop(self) -> None:
        """Stop everything."""
        for client in self.clients:
            with contextlib.suppress(nats.errors.Error):
                await client.close()
        for node in self.nodes:
            if node is not None:
                await node.stop()


async def api(client: Client, request: str, timeout: float = 6, **body: Any) -> Any:
    """One request of the API."""
    payload = json.dumps(body).encode() if body else b""
    answer = await client.request(f"$JS.API.{request}", payload, timeout=timeout)
    return json.loads(answer.data)
