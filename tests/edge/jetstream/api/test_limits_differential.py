"""Which refusal a new stream gets that is refused for more than one reason, at both servers."""

import json
from collections.abc import Iterator
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from bench.servers import Recipe, Server, anchor, headwater

CONFIG = """
jetstream { store_dir: "{dir}", max_mem: 64MiB, max_file: 4GiB }
accounts {
  BOUND { jetstream: { max_store: 2GiB, max_mem: 1MiB, max_consumers: 5, max_streams: 2 }
          users: [{user: bound, password: pw}] }
  FREE { jetstream: enabled, users: [{user: free, password: pw}] }
}
"""
LARGE = 10 << 30
FITS = 1200 << 20
"""Bytes that account and node have once, and the account not twice."""

WANTED: list[tuple[str, dict[str, Any]]] = [
    ("A", {"max_bytes": FITS}),
    ("A", {"max_bytes": FITS}),
    ("A", {"max_bytes": FITS + 1}),
    ("A", {"max_bytes": LARGE}),
    ("A", {"max_consumers": 9}),
    ("A", {"max_bytes": LARGE, "description": "x" * 5000}),
    ("B", {"max_bytes": LARGE, "subjects": ["a..b"]}),
    ("B", {"max_bytes": LARGE, "subjects": ["$JS.API.>"]}),
    ("B", {"max_bytes": LARGE, "subjects": ["A.x"]}),
    ("B", {"max_bytes": LARGE, "num_replicas": 3}),
    ("B", {"max_bytes": LARGE, "num_replicas": 9}),
    ("B", {"max_bytes": LARGE, "max_age": 1}),
    ("B", {"max_bytes": LARGE, "sealed": True}),
    ("B", {"max_bytes": LARGE, "mirror": {"name": "A"}}),
    ("B", {"max_bytes": LARGE, "storage": "memory", "subjects": ["a..b"]}),
    ("B", {"max_consumers": 9, "max_bytes": LARGE, "subjects": ["a..b"]}),
    ("B", {"max_consumers": 9, "subjects": ["a..b"]}),
    ("L" * 300, {"max_bytes": LARGE}),
    ("B", {"max_bytes": FITS, "subjects": ["A.x"]}),
    ("B", {"subjects": ["A.x"]}),
    ("B", {}),
    ("C", {"subjects": ["a..b"], "max_bytes": LARGE}),
    ("D", {"max_bytes": 4 << 30}),
    ("A", {"max_bytes": LARGE, "storage": None}),
    ("A", {"max_bytes": LARGE, "storage": ""}),
    ("E", {"max_bytes": LARGE, "storage": None}),
    ("E", {"max_bytes": LARGE, "storage": None, "subjects": ["a..b"]}),
    ("E", {"max_bytes": LARGE, "storage": None, "subjects": ["A.x"]}),
    ("E", {"max_bytes": LARGE, "storage": None, "max_consumers": 9, "subjects": ["a..b"]}),
    ("E", {"max_bytes": 1 << 20, "storage": None, "persist_mode": "async"}),
    ("E", {"max_bytes": 1 << 20, "persist_mode": "async"}),
]
"""Streams, one after the other; subjects and a storage of files where nothing else is said."""


@pytest.fixture(scope="module")
def ports() -> Iterator[list[int]]:
    with Server(own(headwater())) as ours, Server(own(anchor())) as theirs:
        yield [ours.port, theirs.port]


def own(recipe: Recipe) -> Recipe:
    return Recipe(recipe.name, recipe.command, CONFIG)


async def answered(client: Client, name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The refusal of a stream, empty where there is none."""
    body = {"name": name, "subjects": [f"{name}.>"], "storage": "file", **fields}
    if body["storage"] is None:
        del body["storage"]
    reply = await client.request(f"$JS.API.STREAM.CREATE.{name}", json.dumps(body).encode())
    error: dict[str, Any] = json.loads(reply.data).get("error", {})
    return error


@pytest.mark.parametrize("user", ["bound", "free"])
async def test_limits_are_judged_first(ports: list[int], user: str) -> None:
    found = []
    for port in ports:
        client = await nats.connect(f"nats://{user}:pw@127.0.0.1:{port}", allow_reconnect=False)
        found.append([await answered(client, name, fields) for name, fields in WANTED])
        await client.close()
    for (name, fields), ours, theirs in zip(WANTED, *found, strict=True):
        assert ours == theirs, (name[:9], fields)
    assert sum(1 for each in found[1] if each) > len(WANTED) / 2
