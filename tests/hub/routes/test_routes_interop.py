"""Headwater and nats-server in one cluster, and what a raw peer may and may not do."""

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest

from bench.servers import free_port
from headwater.edge.conf.options import ClusterOptions, Options
from headwater.edge.node.node import Node
from headwater.hub.routes.service import RouteService
from headwater.security.auth_options import AuthOptions
from tests.hub.routes.test_routes import complete, interest, routes
from tests.waiting import until


def start(routes: list[int], **cluster: Any) -> Node:
    urls = [f"nats-route://127.0.0.1:{port}" for port in routes]
    settings = {"name": "C", "host": "127.0.0.1", "port": -1, "routes": urls, **cluster}
    options = Options(
        host="127.0.0.1", port=-1, server_name="ours", cluster=ClusterOptions(**settings)
    )
    node = Node(options, asyncio.get_running_loop())
    node.services.append(RouteService(options))
    node.start()
    return node


@pytest.mark.parametrize("who_dials", ["ours", "theirs"])
async def test_a_cluster_with_nats_server(who_dials: str, tmp_path: Path) -> None:
    client_port, route_port = free_port(), free_port()
    node = start([route_port] if who_dials == "ours" else [])
    config = tmp_path / "theirs.conf"
    dialled = node.ports()["cluster"][0] if who_dials == "theirs" else ""
    config.write_text(
        f'server_name: theirs\nlisten: "127.0.0.1:{client_port}"\n'
        f'cluster {{ name: C, listen: "127.0.0.1:{route_port}", routes: [{dialled}] }}\n'
    )
    anchor = Path(sys.executable).parent / "nats-server"
    with (tmp_path / "log").open("w") as output:
        process = subprocess.Popen([str(anchor), "-c", str(config)], stderr=output)
    try:
        await until(lambda: complete(node, 1))
        await exchange(node, f"nats://127.0.0.1:{client_port}")
    finally:
        await node.stop()
        process.terminate()
        process.wait(10)


async def exchange(node: Node, there: str) -> None:
    """Messages, headers, queue groups and requests, in both directions."""
    ours, theirs = await nats.connect(node.ports()["nats"][0]), await nats.connect(there)
    assert len(theirs.discovered_servers) == len(ours.discovered_servers) == 1

    async def answer(message: Any) -> None:
        await message.respond(message.data + b"!")

    near, far = await ours.subscribe("a.*"), await theirs.subscribe("a.*")
    await ours.subscribe("ask.ours", "q", cb=answer)
    await theirs.subscribe("ask.theirs", "q", cb=answer)
    await ours.flush()
    await theirs.flush()
    await until(lambda: interest(node, b"ask.theirs"))
    for index, client in enumerate((ours, theirs)):
        await client.publish(f"a.{index}", b"hello", headers={"n": str(index)})
        for subscription in (near, far):
            message = await subscription.next_msg(2)
            assert (message.subject, message.headers) == (f"a.{index}", {"n": str(index)})
    asked = await ours.request("ask.theirs", b"one", timeout=2, headers={"h": "1"})
    assert (asked.data, asked.headers) == (b"one!", {"h": "1"})
    assert (await theirs.request("ask.ours", b"two", timeout=2)).data == b"two!"
    await ours.close()
    await theirs.close()


class Raw:
    """A peer that writes lines by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *lines: bytes) -> None:
        self.writer.write(b"".join(line + b"\r\n" for line in lines))

    def introduce(self, **info: Any) -> None:
        fields = {"server_id": "NRAW", "server_name": "raw", "headers": True, "cluster": "C"}
        connect = {"verbose": False, "headers": True, "cluster": "C", **info.pop("connect", {})}
        self.send(
            b"CONNECT " + json.dumps(connect).encode(),
            b"INFO " + json.dumps({**fields, **info}).encode(),
        )

    async def line(self) -> bytes:
        """The next line that is not about the node's own interest."""
        while True:
            line = await asyncio.wait_for(self.reader.readline(), 2)
            if not line.startswith((b"RS+", b"INFO")):
                return line.rstrip()


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    found = start([], authorization=AuthOptions(user="r", password="pw"))
    await asyncio.sleep(0)
    yield found
    await found.stop()


@pytest.fixture
async def raw(node: Node) -> AsyncIterator[Raw]:
    port = int(node.ports()["cluster"][0].rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    yield Raw(reader, writer)
    writer.close()


LOGIN = {"user": "r", "pass": "pw"}


async def test_messages_in_their_forms(node: Node, raw: Raw) -> None:
    client = await nats.connect(node.ports()["nats"][0])
    got: list[tuple[Any, ...]] = []

    async def note(message: Any) -> None:
        got.append((message.subject, message.reply, message.headers, message.data))

    async def note_queue(message: Any) -> None:
        got.append(("queue", message.data))

    await client.subscribe("a", cb=note)
    await client.subscribe("b", "q1", cb=note_queue)
    await client.subscribe("b", "q2", cb=note_queue)
    await client.flush()
    raw.introduce(connect=LOGIN)
    header = b"NATS/1.0\r\nk: v\r\n\r\n"
    raw.send(
        b"RMSG $G a 2\r\nhi",
        b"RMSG $G a answer.me 2\r\nhi",
        b"HMSG $G a %d %d\r\n%shi" % (len(header), len(header) + 2, header),
        b"RMSG $G b | q1 1\r\n1",
        b"RMSG $G b + r q1 q2 1\r\n2",
        b"RMSG $G b 1\r\n3",
    )
    await until(lambda: len(got) >= 6)
    assert got[:3] == [
        ("a", "", None, b"hi"),
        ("a", "answer.me", None, b"hi"),
        ("a", "", {"k": "v"}, b"hi"),
    ]
    assert sorted(got[3:]) == [("queue", b"1"), ("queue", b"2"), ("queue", b"2")]
    await client.close()


async def test_what_goes_out(node: Node, raw: Raw) -> None:
    raw.introduce(connect=LOGIN)
    raw.send(b"RS+ $G a.*", b"RS+ $G a.* q 3", b"RS+ $G b.> r 1", b"PING")
    assert await raw.line() == b"PONG"
    client = await nats.connect(node.ports()["nats"][0])
    await client.publish("a.1", b"x", reply="back")
    assert await raw.line() == b"RMSG $G a.1 + back q 1"
    assert await raw.line() == b"x"
    await client.publish("b.1", b"y", headers={"k": "v"})
    assert (await raw.line()).startswith(b"HMSG $G b.1 | r 18 19")
    for _ in range(3):
        await raw.line()
    raw.send(b"RS- $G a.*", b"RS- $G a.* q", b"PING")
    assert await raw.line() == b"y" or await raw.line() == b"PONG"
    await until(lambda: not interest(node, b"a.1"))
    await client.close()


async def test_what_came_by_a_route_leaves_by_none(node: Node, raw: Raw) -> None:
    port = int(node.ports()["cluster"][0].rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    other = Raw(reader, writer)
    raw.introduce(connect=LOGIN)
    other.introduce(connect=LOGIN, server_id="NOTHER", server_name="other")
    other.send(b"RS+ $G x", b"PING")
    assert await other.line() == b"PONG"
    raw.send(b"RMSG $G x 2\r\nno", b"PING")
    assert await raw.line() == b"PONG"
    other.send(b"PING")
    assert await other.line() == b"PONG"
    writer.close()


@pytest.mark.parametrize(
    "lines",
    [
        [b"RS+ $G early"],
        [b"HELLO"],
        [b"CONNECT {bad"],
        [b"INFO {bad"],
        [b'INFO {"server_id":"N"}'],
        [b'CONNECT {"user":"r","pass":"no","cluster":"C"}'],
        [b'CONNECT {"user":"r","pass":"pw","cluster":"D"}'],
        [b'CONNECT {"user":"r","pass":"pw","cluster":"C","lang":"python3"}'],
        [b"x" * 70_000],
    ],
)
async def test_a_peer_must_introduce_itself(
    node: Node, raw: Raw, lines: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL, "headwater.route"):
        raw.send(*lines)
        assert (await raw.line()).startswith(b"-ERR")
        assert await asyncio.wait_for(raw.reader.read(), 2) == b""
    assert not routes(node)


@pytest.mark.parametrize(
    "line",
    [
        b"RMSG $G",
        b"RMSG $G a",
        b"RMSG $G a x",
        b"RMSG $G a -1",
        b"RMSG $G a 99999999999",
        b"RMSG $G a ? q 1\r\nx",
        b"RMSG $G a 2\r\nabc",
        b"HMSG $G a 9 4\r\nabcd",
        b"RS+ $G",
        b"RS+ $G a..b",
        b"RS+ $G a q",
        b"RS+ $G a q x",
        b"RS-",
        b"RMSG $G a | " + b"q " * 600 + b"0\r\n",
    ],
)
async def test_broken_frames_end_the_route(
    node: Node, raw: Raw, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    raw.introduce(connect=LOGIN)
    raw.send(line)
    assert (await raw.line()).startswith(b"-ERR")
    await until(lambda: not routes(node))
