"""Lines and messages of a cluster behind a leaf link, as routes have them: with the cluster's name
for a peer that says `lnoc` and `lnocu`, as nats-server does, and without for others."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headwater.edge.conf.options import LeafOptions
from tests.hub.routes.test_routes import Cluster, free_port, interest, routes
from tests.waiting import until

WAIT_S = 20


class RawPeer:
    """A server on one connection, which says and reads lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def say(self, *lines: str) -> None:
        self.writer.write("".join(f"{line}\r\n" for line in lines).encode())

    async def heard(self) -> list[str]:
        """The lines of interest and messages up to the answer to a PING."""
        self.say("PING")
        found = []
        while True:
            line = (await asyncio.wait_for(self.reader.readline(), WAIT_S)).decode().rstrip()
            assert line, "the connection has ended"
            if line == "PONG":
                return found
            if line[1:4] in ("S+ ", "S- ", "MSG") and "both" in line:
                found.append(line)


async def peer(port: int, connect: dict[str, Any], info: dict[str, Any] | None = None) -> RawPeer:
    """A peer that has introduced itself."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await reader.readline()
    made = RawPeer(reader, writer)
    made.say(f"CONNECT {json.dumps(connect)}", *([f"INFO {json.dumps(info)}"] if info else []))
    return made


async def route(cluster: Cluster, name: str, **info: Any) -> RawPeer:
    connect = {"name": name, "cluster": "C", "headers": True}
    told = {"server_id": name, "server_name": name, "cluster": "C", "headers": True, **info}
    return await peer(cluster.ports[0], connect, told)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    yield made
    await made.stop()


async def test_peers_hear_of_origins_as_they_know_them(cluster: Cluster) -> None:
    leaf_port = free_port()
    node = cluster.add(leaf=LeafOptions(host="127.0.0.1", port=leaf_port))
    new = await route(cluster, "NEW", lnoc=True, lnocu=True)
    old = await route(cluster, "OLD")
    await until(lambda: len(routes(node)) == 2)
    leaf = await peer(leaf_port, {"server_id": "L", "name": "l", "cluster": "X", "headers": True})
    client = await cluster.connect(0)

    leaf.say("LS+ both")
    await leaf.heard()
    subscription = await client.subscribe("both")
    await client.flush()
    assert set(await new.heard()) == {"LS+ X $G both", "RS+ $G both"}
    assert set(await old.heard()) == {"RS+ $G both"}

    new.say("LMSG X $G both 0 1", "a")
    await new.heard()
    assert (await subscription.next_msg(WAIT_S)).data == b"a"
    assert "LMSG both 1" not in await leaf.heard(), "its own message has come back"
    old.say("RMSG $G both 1", "b")
    await old.heard()
    assert (await subscription.next_msg(WAIT_S)).data == b"b"
    assert "LMSG both 1" in await leaf.heard()

    new.say("RS+ $G both")
    old.say("RS+ $G both")
    await until(lambda: interest(node, b"both"))
    await new.heard(), await old.heard()
    leaf.say("LMSG both 1", "c")
    await leaf.heard()
    assert await new.heard() == ["LMSG X $G both 0 1"]
    assert await old.heard() == ["RMSG $G both 1"]

    await subscription.unsubscribe()
    await client.flush()
    assert await new.heard() == ["RS- $G both"]
    assert await old.heard() == [], "the leaf link wants it still"
    leaf.say("LS- both")
    await leaf.heard()
    assert await new.heard() == ["LS- X $G both"]
    assert await old.heard() == ["RS- $G both"]
    for each in (leaf, new, old):
        each.writer.close()


async def test_lines_that_make_no_sense_end_the_route(cluster: Cluster) -> None:
    node = cluster.add()
    for number, line in enumerate(("LS+ X", "LS- X", "LS+", "LMSG X $G a 2 1", "LS+ X $G a..b")):
        bad = await route(cluster, f"BAD{number}", lnoc=True, lnocu=True)
        await until(lambda: len(routes(node)) == 1)
        bad.say(line, "x")
        await until(lambda: not routes(node), line)
        bad.writer.close()
