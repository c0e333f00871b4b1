"""Hubs and edges as processes, and a line between them that may be slow and counts its bytes."""

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import nats
from nats.aio.client import Client

from bench.servers import HOST, Recipe, Server, anchor, free_port, headwater

TICKS = os.sysconf("SC_CLK_TCK")
RECIPES = {"ours": headwater, "theirs": anchor}
WINDOW = 2000
POLL_S = 0.02
PIECE = 1024
"""Bytes that a slow line passes at a time: 128 ms of 64 kbit/s."""


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has taken so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Line:
    """A TCP relay. `rate` is in bytes a second each way; 0 is as fast as it goes."""

    def __init__(self, target: int, rate: int = 0) -> None:
        self.target = target
        self.rate = rate
        self.port = 0
        self.passed = 0
        """Bytes in both directions."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        listening.bind((HOST, 0))
        self._server = await asyncio.start_server(self._accept, sock=listening, limit=4096)
        self.port = listening.getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far = socket.socket()
        if self.rate:
            far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        far.setblocking(False)
        await asyncio.get_running_loop().sock_connect(far, (HOST, self.target))
        far_reader, far_writer = await asyncio.open_connection(sock=far, limit=4096)
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        due = 0.0
        with contextlib.suppress(OSError):
            while data := await source.read(PIECE if self.rate else 1 << 18):
                self.passed += len(data)
                if self.rate:
                    due = max(due, time.monotonic()) + len(data) / self.rate
                    await asyncio.sleep(due - time.monotonic())
                sink.write(data)
                await sink.drain()
        sink.close()


class Hub:
    """A hub and its edges, all of them removed at the end."""

    def __init__(self, kind: str, more: str = "") -> None:
        self.leaf_port = free_port()
        self.more = more
        self.server = self._server(kind, "hub", f'listen: "{HOST}:{self.leaf_port}"{more}')
        self.edges: list[Server] = []

    def __enter__(self) -> Self:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in [*self.edges, self.server]:
            server.close()

    def _server(self, kind: str, name: str, leafnodes: str) -> Server:
        made = RECIPES[kind]()
        text = (
            f'server_name: {name}\njetstream {{ store_dir: "{{dir}}", domain: {name} }}\n'
            f"leafnodes {{ {leafnodes} }}\n"
        )
        return Server(Recipe(made.name, made.command, text))

    def edge(self, kind: str, name: str = "edge", port: int = 0, more: str = "") -> Server:
        """Another edge, started; `port` of the line that it goes by."""
        url = f"nats://{HOST}:{port or self.leaf_port}"
        remotes = f'reconnect: "250ms", remotes [ {{ url: "{url}"{more} }} ]'
        made = self._server(kind, name, remotes)
        self.edges.append(made)
        made.start()
        return made


async def connected(server: Server) -> Client:
    """A client of a server."""
    return await nats.connect(f"nats://{HOST}:{server.port}", allow_reconnect=False)


async def ask(client: Client, subject: str, body: Any = None, timeout: float = 30) -> Any:
    """A request of JetStream's API. Raises RuntimeError with its error."""
    answer = await client.request(subject, json.dumps(body or {}).encode(), timeout=timeout)
    found = json.loads(answer.data)
    if "error" in found:
        raise RuntimeError(f"{subject}: {found['error']}")
    return found


async def held(client: Client, stream: str) -> int:
    """Messages of a stream."""
    return int((await ask(client, f"$JS.API.STREAM.INFO.{stream}"))["state"]["messages"])


async def holds(client: Client, stream: str, count: int, patience: float = 600) -> None:
    """Wait until a stream has so many messages. Raises TimeoutError."""
    end = time.monotonic() + patience
    while await held(client, stream) < count:
        if time.monotonic() > end:
            raise TimeoutError(f"{stream} has not got {count} messages in {patience} s")
        await asyncio.sleep(POLL_S)


def payloads(count: int, size: int, telemetry: bool) -> Iterator[bytes]:
    """So many messages, random or as devices report."""
    for number in range(count):
        if telemetry:
            row = {
                "device": f"press-{number % 40}",
                "time": 1_700_000_000_000 + number * 250,
                "temperature": 60 + number % 97 / 10,
                "pressure": 4 + number % 31 / 100,
                "state": "running" if number % 50 else "idle",
            }
            yield json.dumps(row).encode()
        else:
            yield os.urandom(size)


async def fill(
    server: Server, streams: list[str], count: int, size: int, telemetry: bool = False
) -> None:
    """Make streams and store `count` messages in all of them together, each acknowledged."""
    client = await connected(server)
    for name in streams:
        await ask(client, f"$JS.API.STREAM.CREATE.{name}", {"name": name, "subjects": [name]})
    await client.close()
    reader, writer = await asyncio.open_connection(HOST, server.port)
    writer.write(b'CONNECT {"verbose":false}\r\nSUB acks 1\r\n')
    sent = 0
    frames = [
        b"PUB %s acks %d\r\n%s\r\n" % (streams[n % len(streams)].encode(), len(body), body)
        for n, body in enumerate(payloads(min(count, 20_000), size, telemetry))
    ]
    while sent < count:
        some = min(WINDOW, count - sent)
        writer.write(b"".join(frames[(sent + n) % len(frames)] for n in range(some)))
        sent += some
        acked = 0
        while acked < some:
            line = await reader.readline()
            if line.startswith(b"MSG acks"):
                answer = await reader.readline()
                if b'"error"' in answer:
                    raise RuntimeError(answer.decode())
                acked += 1
            elif line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
            elif not line:
                raise RuntimeError("the server has closed the connection")
    writer.close()
