"""What a leader has handed out, and its client has not received, when another node leads."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from bench.cluster.namespaces import Namespaces, NoNamespaces
from bench.cluster.nodes import SERVERS, ClusterNodes, insist, leader_of, whole
from headwater.hub.routes.unsent import unsent_streams
from headwater.hub.streams.held_deliveries import CUT
from headwater.hub.streams.silent_clients import Line, SilentClients, line_of
from tests.hub.lab import Lab, api
from tests.waiting import until

SLOW_BYTES = 16 << 20
"""More than sockets take of a client that reads nothing and has little room itself."""
ROOM = 1 << 16
TRIES = 4
"""The leader may be so late that it hands out nothing."""
MARK = b"mark"


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    found = Lab(tmp_path)
    await found.formed()
    yield found
    await found.stop()


async def test_what_a_cut_line_holds_does_not_arrive_later(tmp_path: Path) -> None:
    """The leader's words are lost: it hands out a message, and nobody hears of it. When the line is
    back, another client has acknowledged the message to the next leader."""
    nodes = ClusterNodes(SERVERS["headwater"], parent=tmp_path)
    try:
        with nodes, Namespaces(nodes.size) as spaces:
            nodes.hosts = spaces.addresses
            nodes.wrap = [spaces.inside(index) for index in range(nodes.size)]
            nodes.start_all()
            await nodes.ready()
            await _cut_and_mended(nodes, spaces)
    except NoNamespaces as error:
        pytest.skip(f"no network namespaces: {error}")


async def _cut_and_mended(nodes: ClusterNodes, spaces: Namespaces) -> None:
    client = await nodes.client(0)
    await insist(client, "STREAM.CREATE.S", name="S", subjects=["s"], num_replicas=3)
    config = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 60_000_000_000}
    await insist(client, "CONSUMER.DURABLE.CREATE.S.c", stream_name="S", config=config)
    for number in range(TRIES):
        old = await whole(client, "S")
        other, own = await nodes.client((old + 1) % nodes.size), await nodes.client(old)
        await other.jetstream().publish("s", b"%d" % number, timeout=5)
        heard = await _hear(own, "own")
        spaces.mute(old)
        body = json.dumps({"batch": 1, "expires": int(60e9)}).encode()
        await own.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", body, reply="own")
        await until(partial(_led_by_another, other, old), "another node leads")
        pulls = await other.jetstream().pull_subscribe_bind("c", stream="S")
        (found,) = await pulls.fetch(1, timeout=20)
        await found.ack_sync(timeout=5)
        spaces.mend(old)
        await until(partial(_is_heard, other, heard), "the line is back")
        assert found.data not in heard
        if "is cut off" in nodes.log(old):
            return
    pytest.fail("the leader had handed out nothing")


async def _hear(client: Client, subject: str) -> list[bytes]:
    heard: list[bytes] = []

    async def hear(message: Any) -> None:
        heard.append(message.data)

    await client.subscribe(subject, cb=hear)
    await client.flush()
    return heard


async def _led_by_another(client: Client, old: int) -> bool:
    return await leader_of(client, "S") != old


async def _is_heard(client: Client, heard: list[bytes]) -> bool:
    await client.publish("own", MARK)
    return MARK in heard


async def test_messages_that_wait_for_a_slow_client_go_with_it(lab: Lab) -> None:
    """They wait in the node, behind what the client does not read; others are left alone."""
    client = await lab.connect(0)
    await api(client, "STREAM.CREATE.S", name="S", subjects=["s"], storage="memory")
    config = {"durable_name": "c", "deliver_subject": "own", "ack_policy": "none"}
    await api(client, "CONSUMER.DURABLE.CREATE.S.c", stream_name="S", config=config)
    node, silent = lab.nodes[0], SilentClients(lab.service(0).node.kernel, list)
    assert node is not None
    conns = node.sessions.conns
    before = set(conns)
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM)
    line.connect(("127.0.0.1", node.listeners[0].port))
    reader, writer = await asyncio.open_connection(sock=line)
    try:
        writer.write(b'CONNECT {"verbose":false}\r\nSUB own 1\r\nPING\r\n')
        await reader.readuntil(b"PONG\r\n")
        (slow,) = (conns[cid] for cid in set(conns) - before)
        writer.transport.pause_reading()
        for _ in range(SLOW_BYTES >> 16):
            await client.jetstream().publish("s", bytes(1 << 16))
        await until(lambda: unsent_streams(slow) == {"S"}, "messages wait")
        silent.clients = conns.values
        silent.look("OTHER")
        assert not slow.closed
        silent.look("S")
        assert slow.closed and slow.reason == CUT
        await client.flush()
        with pytest.raises(ConnectionResetError):
            writer.transport.resume_reading()
            await reader.read()
            await reader.read()
    finally:
        writer.transport.abort()


async def test_what_the_system_knows_of_a_line() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()) as near:
        far, _ = listener.accept()
        with far:
            near.sendall(b"12345")
            assert far.recv(5, socket.MSG_WAITALL) == b"12345"
            line = await until(lambda: (found := line_of(near)) and not _waits(found) and found)
            assert not line.silent
            near.sendall(b"678")
            assert line_of(near).sent == line.sent + 3
    assert line_of(near) is None, "it is closed"
    assert line_of(None) is None


def _waits(line: Line) -> int:
    return line.sent - line.confirmed
