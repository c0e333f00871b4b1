"""A program of any version with one of the folders of nodes that are kept here."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import nats
from nats.aio.client import Client

from bench.servers import Recipe, Server, free_port
from tests.waiting import until

KINDS = {"node": 1, "sealed": 1, "gateway": 1, "cluster": 3}
"""Kinds of stores, and how many nodes each has."""
SEALED = ', key: "of no worth", cipher: aes'


@contextlib.contextmanager
def running(program: str, kind: str, folder: Path) -> Iterator[list[Server]]:
    """The nodes of a kind, with their stores in `folder`."""
    routes = [free_port() for _ in range(KINDS[kind])]
    with contextlib.ExitStack() as stack:
        servers = []
        for index, port in enumerate(routes):
            config = (
                f"server_name: n{index}\n"
                f'jetstream {{ store_dir: "{{dir}}"{SEALED if kind == "sealed" else ""} }}\n'
            )
            if kind == "gateway":
                config += "headwater { profile: edge, commit_max_delay: 100ms }\n"
            if len(routes) > 1:
                urls = ", ".join(f"nats-route://127.0.0.1:{each}" for each in routes)
                config += f'cluster {{ name: C, listen: "127.0.0.1:{port}", routes: [{urls}] }}\n'
            recipe = Recipe(f"n{index}", (program, "serve"), config)
            servers.append(stack.enter_context(Server(recipe, store=folder / f"n{index}")))
        yield servers


@contextlib.asynccontextmanager
async def connected(server: Server) -> AsyncIterator[Client]:
    """A client, as soon as every stream of the node answers."""
    client = await nats.connect(f"nats://127.0.0.1:{server.port}")
    try:
        await until(lambda: _answers(client), "all streams answer")
        yield client
    finally:
        await client.close()


async def _answers(client: Client) -> bool:
    with contextlib.suppress(nats.errors.Error, asyncio.TimeoutError):
        listed = await client.request("$JS.API.STREAM.LIST", b"{}", timeout=2)
        found = json.loads(listed.data)
        streams = found.get("streams") or []
        leads = all("cluster" not in each or each["cluster"].get("leader") for each in streams)
        return "error" not in found and not found.get("missing") and leads
    return False
