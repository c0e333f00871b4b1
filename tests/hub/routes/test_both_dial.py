"""Both ends dial at once, without pools: the route that the peer stays with stays here.

The peer is played on two bare sockets, as nats-server behaves, so that each order is sure.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.hub.routes.test_routes import Cluster, routes
from tests.waiting import until

INFO = {
    "server_id": "PEER",
    "server_name": "peer",
    "version": "2.15.1",
    "proto": 1,
    "host": "127.0.0.1",
    "port": 1,
    "headers": True,
    "max_payload": 1048576,
    "cluster": "C",
}
CONNECT = {"verbose": False, "pedantic": False, "name": "PEER", "headers": True, "cluster": "C"}


class Peer:
    """One end of one route. PINGs are answered when it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.verbs: list[bytes] = []
        self.ended = False
        self.answers = False
        self.task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while line := await self.reader.readline():
                self.verbs.append(line.split()[0])
                if line == b"PING\r\n" and self.answers:
                    self.writer.write(b"PONG\r\n")
        self.ended = True

    def say(self, *lines: bytes) -> None:
        self.writer.write(b"".join(line + b"\r\n" for line in lines))

    def introduce(self) -> None:
        self.say(b"INFO " + json.dumps(INFO).encode())

    def pong(self) -> None:
        """It uses this route."""
        self.answers = True
        self.writer.write(b"PONG\r\n" * self.verbs.count(b"PING"))

    async def close(self) -> None:
        self.writer.close()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Meeting:
    """A node that dials, and is dialled by, the same peer."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.dialled: list[Peer] = []
        self.peers: list[Peer] = []

    async def begin(self) -> tuple[Any, Peer, Peer]:
        """The node; the route that it dialled, and the one that the peer did, both introduced."""
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self.server.sockets[0].getsockname()[1]
        node = self.cluster.add(port, cluster={"pool_size": -1})
        await until(lambda: bool(self.dialled))
        ours = self.dialled[0]
        await until(lambda: b"PING" in ours.verbs)
        theirs = Peer(*await asyncio.open_connection("127.0.0.1", self.cluster.ports[0]))
        self.peers.append(theirs)
        theirs.say(b"CONNECT " + json.dumps(CONNECT).encode())
        theirs.introduce()
        theirs.say(b"RS+ $G there")
        await until(lambda: b"INFO" in theirs.verbs)
        return node, ours, theirs

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        self.dialled.append(peer)
        self.peers.append(peer)
        peer.introduce()

    async def end(self) -> None:
        for peer in self.peers:
            await peer.close()
        self.server.close()
        await self.cluster.stop()


@pytest.fixture
async def meeting() -> AsyncIterator[Meeting]:
    found = Meeting()
    yield found
    await found.end()


async def test_the_peer_stays_with_the_route_that_the_node_dialled(meeting: Meeting) -> None:
    node, ours, theirs = await meeting.begin()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not ours.ended
    ours.pong()
    await until(lambda: theirs.ended)
    assert not ours.ended
    assert [route["did_solicit"] for route in routes(node)] == [True]


async def test_the_peer_stays_with_the_route_that_it_dialled(meeting: Meeting) -> None:
    node, ours, theirs = await meeting.begin()
    theirs.answers = True
    await ours.close()
    await until(lambda: [route["did_solicit"] for route in routes(node)] == [False])
    # What it said on that route while the other one was in the way counts.
    client = await meeting.cluster.connect(0)
    await client.publish("there", b"x")
    await until(lambda: b"RMSG" in theirs.verbs)
    assert not theirs.ended
    assert len(meeting.dialled) == 1


async def test_a_route_that_never_says_which_one_stays_makes_room(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.hub.routes.routes.DOUBT_S", 0.1)
    node, ours, theirs = await meeting.begin()
    theirs.answers = True
    await until(lambda: ours.ended)
    await until(lambda: [route["did_solicit"] for route in routes(node)] == [False])
    assert not theirs.ended
