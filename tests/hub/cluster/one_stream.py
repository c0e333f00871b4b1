"""A cluster of processes with one stream, which every node has."""

from nats.aio.client import Client

from bench.cluster.nodes import ClusterNodes, whole
from tests.hub.lab import api

STREAM = {"name": "S", "subjects": ["s.>"], "num_replicas": 3, "storage": "file"}


async def begun(nodes: ClusterNodes) -> Client:
    """Start all nodes and make the stream; returns a client of the first one."""
    nodes.start_all()
    await nodes.ready()
    client = await nodes.client(0)
    assert "error" not in await api(client, "STREAM.CREATE.S", **STREAM)
    await whole(client, "S")
    return client
