"""Hubs that say odd things, or the same for ever: an edge serves its clients, and says little."""

import asyncio
import contextlib
import json
import logging
import socket
import tracemalloc
from collections.abc import AsyncIterator
from functools import partial

import pytest

from headwater.edge.jetstream.model import s2
from headwater.edge.node.node import Node
from headwater.edge.websocket import websocket_filter
from headwater.edge.websocket.websocket_filter import FilterStack, WebSocketFilter
from headwater.edge.wire.s2_blocks import encode_block
from headwater.federation.leaf.compression import AT_ONCE, S2Filter
from tests.federation.lab import Lab, leafs
from tests.federation.one_end import OneEnd
from tests.waiting import until

INFO = {
    "server_id": "R",
    "server_name": "rogue",
    "version": "2.14.0",
    "client_id": 5,
    "headers": True,
    "leafnode_urls": ["127.0.0.1:1"],
}


class RogueHub:
    """Says one INFO and, when the edge has logged in, what it was given. `answers` counts the
    edge's PONGs."""

    def __init__(self, more: dict[str, object], then: bytes = b"") -> None:
        self.info = b"INFO " + json.dumps(INFO | more).encode() + b"\r\n"
        self.then = then
        self.answers = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        writer.write(self.info)
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                if line.startswith(b"CONNECT"):
                    writer.write(self.then)
                elif line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
                self.answers += line.startswith(b"PONG")
        writer.close()


@contextlib.asynccontextmanager
async def edge_of(lab: Lab, hub: RogueHub) -> AsyncIterator[Node]:
    """An edge that dials the hub."""
    server = await asyncio.start_server(hub.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield await lab.node(
            'leafnodes { reconnect: "50ms", remotes [ '
            f'{{ url: "nats://127.0.0.1:{port}", ignore_discovered_servers: true }} ] }}'
        )
    finally:
        server.close()


@pytest.mark.parametrize(
    "size", ["abc", [1], {"a": 1}, 2**31, 2**63, 2**64, 1e300, -5, None, True], ids=repr
)
async def test_an_odd_size_in_an_info_is_none(
    lab: Lab, caplog: pytest.LogCaptureFixture, size: object
) -> None:
    """The link comes up, and keeps no message of any size for the hub."""
    big = b"LMSG a.b %d\r\n" % (1 << 28)
    async with edge_of(lab, RogueHub({"max_payload": size})) as edge:
        await until(lambda: leafs(edge), "the link is up")
    async with edge_of(lab, RogueHub({"max_payload": size}, b"PING\r\n" + big)) as edge:
        await until(
            lambda: any("Payload Exceeded" in one for one in caplog.messages),
            "the message is refused",
        )
    assert not [one for one in caplog.records if one.exc_info]


async def test_complaints_without_end_do_not_fill_the_log(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    hub = RogueHub({}, b"-ERR 'you again'\r\n" * 3000 + b"PING\r\n")
    with caplog.at_level(logging.ERROR):
        async with edge_of(lab, hub) as edge:
            await until(lambda: hub.answers, "all was read")
            assert leafs(edge)
    assert 1 <= sum("you again" in one for one in caplog.messages) <= 4


@pytest.mark.parametrize("line", [b"LS+ a.%d\r\n", b"PING\r\n"])
async def test_a_flood_of_control_lines_leaves_others_their_turn(line: bytes) -> None:
    """A few hundred lines are acted on, then everybody else has a turn."""
    link, lines = OneEnd(), 8000
    ours, theirs = socket.socketpair()
    link.conn.attach(ours)
    theirs.setblocking(False)
    theirs.sendall(b"".join(line % n if b"%" in line else line for n in range(lines)))
    done, most, answers = 0, 0, b""
    while done < lines:
        await asyncio.sleep(0)
        with contextlib.suppress(BlockingIOError):
            answers += theirs.recv(1 << 20)
        now = len(link.conn.subs) or answers.count(b"PONG\r\n")
        most, done = max(most, now - done), now
    assert most <= 512
    link.conn.close("Client Closed")
    theirs.close()


@pytest.mark.parametrize("websocket", [False, True])
async def test_what_inflates_much_leaves_others_their_turn(websocket: bool) -> None:
    """One read brings 6 MiB of messages. A turn takes as many as a read without compression."""
    link, message = OneEnd(), b"LMSG plain 0\r\n\r\n"
    count = (6 << 20) // len(message)
    content = message * count
    ours, theirs = socket.socketpair()
    link.conn.attach(ours)
    reader = S2Filter("s2_fast")
    reader.trusted = True
    link.conn.use_filter(FilterStack(reader, WebSocketFilter()) if websocket else reader)
    if websocket:
        content = WebSocketFilter(server_side=False).send(content)
    sent = s2.frames(content, partial(encode_block, thorough=True), s2.IDENTIFIER)
    link.conn.feed(sent)
    most = done = len(link.got)
    while done < count:
        await asyncio.sleep(0)
        now = len(link.got)
        most, done = max(most, now - done), now
    assert most <= 2 * AT_ONCE // len(message)
    link.conn.close("Client Closed")
    theirs.close()


@pytest.mark.parametrize("websocket", [False, True])
def test_what_was_handed_on_is_not_kept(
    websocket: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link that is idle again holds nothing of what came, in one WebSocket message or more."""
    body = bytes((4 << 20) + 300_000)
    monkeypatch.setattr(websocket_filter, "FRAME_BYTES_MAX", len(body))
    reader: S2Filter | WebSocketFilter
    if websocket:
        reader = WebSocketFilter(compression=True)
        sent = WebSocketFilter(server_side=False, compression=True).send(body)
    else:
        reader = S2Filter("s2_fast")
        reader.trusted = True
        sent = s2.frames(body, encode_block, s2.IDENTIFIER)
    tracemalloc.start()
    try:
        taken = len(reader.receive(sent))
        while reader.more:
            taken += len(reader.receive(b""))
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken == len(body)
    assert kept < 100_000
