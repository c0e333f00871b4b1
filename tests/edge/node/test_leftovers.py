"""What has ended goes at once, without Python's search for things that refer to each other.

That search comes after two million new objects on a running node: what waits for it would grow for
days on a gateway whose link comes and goes.
"""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater.edge
from bench.servers import HOST
from bench.wire import Link
from headwater.edge.embedded.embedded_node import EmbeddedNode
from headwater.edge.storage.node import leftovers
from tests.waiting import until

COUNT = 20
SETTINGS: dict[str, Any] = {
    "host": HOST,
    "port": -1,
    "leafnodes": {"host": HOST, "port": -1},
    "websocket": {"host": HOST, "port": -1, "no_tls": True},
}
LEAF = b'CONNECT {"name":"L","version":"2.10.0","headers":true}\r\nLS+ a.*\r\nPING\r\n'
CLIENT = b"CONNECT {}\r\nSUB a.* 1\r\nPING\r\n"
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
DOORS = {
    "client": ("nats", CLIENT, b"PONG", {"ClientConn", "ClientSub", "Login"}),
    "leaf": ("leafnodes", LEAF, b"PONG", {"LeafConn", "HubSession", "Halts"}),
    "silent leaf": ("leafnodes", b"", b"INFO", {"LeafConn", "HubSession"}),
    "websocket": ("websocket", UPGRADE, b"INFO", {"ClientConn", "FrameProtocol", "generator"}),
}


@pytest.fixture
def counted() -> Iterator[None]:
    """Objects go when the last reference to them goes, and not otherwise."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(kinds: set[str]) -> int:
    return sum(type(one).__name__ in kinds for one in gc.get_objects())


def port_of(node: EmbeddedNode, door: str) -> int:
    return int(node.node.ports()[door][0].rpartition(":")[2])


async def visit(port: int, words: bytes, answer: bytes) -> asyncio.StreamWriter:
    """A connection that has been answered."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(words)
    await reader.readuntil(answer)
    return writer


@pytest.mark.parametrize("kind", DOORS)
async def test_a_connection_that_ended_leaves_nothing(kind: str, counted: None) -> None:
    door, words, answer, kinds = DOORS[kind]
    async with headwater.edge.open_node(SETTINGS) as node:
        port = port_of(node, door)
        before = alive(kinds)
        peers = [await visit(port, words, answer) for _ in range(COUNT)]
        # They have lived for long: Python looks at those that die young more often.
        gc.collect()
        during = alive(kinds)
        while peers:
            peer = peers.pop()
            peer.close()
            await peer.wait_closed()
        del peer
        assert during >= before + COUNT * len(kinds)
        await until(lambda: alive(kinds) < before + COUNT // 2, (kinds, before, during))


async def test_the_memory_of_a_deleted_stream_serves_again(tmp_path: Path, counted: None) -> None:
    """Its index of 30,000 subjects takes some megabytes."""
    settings = {**SETTINGS, "jetstream": {"store_dir": tmp_path / "store"}}
    async with headwater.edge.open_node(settings) as node:
        port = port_of(node, "nats")

        def make_and_delete(subjects: int) -> None:
            with Link(port) as link:
                for storage in ("memory", "file"):
                    link.api("STREAM.CREATE.S", name="S", subjects=["s.*"], storage=storage)
                    for number in range(subjects):
                        link.publish(f"s.{number}", b"")
                    link.request("s.last", b"")
                    link.api("STREAM.DELETE.S")

        before = alive({"Stream"})
        await asyncio.to_thread(make_and_delete, 1)
        assert alive({"Stream"}) == before + 2, "small ones wait until there is more"
        await asyncio.to_thread(make_and_delete, leftovers.WORTH_BYTES // 128)
        await until(lambda: alive({"Stream"}) <= before, "streams that are gone")
