"""Streams to read: raw messages, and telemetry as JSON."""

import asyncio
import json
import os
import socket
from collections.abc import Sequence
from typing import Any

from bench.links.lab import ask, connected
from bench.servers import HOST, Server

SUBJECT = "plant.a.press.7"
"""Subject of raw messages, of a usual length."""
WINDOW = 2000
DISTINCT = 20_000
"""Different messages of a stream; they come again in the same order."""


def telemetry(number: int) -> dict[str, Any]:
    """What a device reports."""
    return {
        "device": f"press-{number % 40}",
        "metric": "temperature",
        "t_us": 1_700_000_000_000_000 + number * 250_000,
        "value": 60 + number % 97 / 10,
    }


def raw_payloads(size: int) -> list[bytes]:
    """Random messages of `size` bytes."""
    return [os.urandom(size) for _ in range(DISTINCT)]


def json_payloads() -> list[bytes]:
    """Messages of about 100 bytes."""
    return [json.dumps(telemetry(number)).encode() for number in range(DISTINCT)]


def fill(server: Server, stream: str, payloads: Sequence[bytes], count: int) -> None:
    """Make a stream and store `count` messages in it, each acknowledged.

    Raises RuntimeError when one was refused.
    """

    async def make() -> None:
        client = await connected(server)
        config = {"name": stream, "subjects": [f"{stream}.>"]}
        await ask(client, f"$JS.API.STREAM.CREATE.{stream}", config)
        await client.close()

    asyncio.run(make())
    subject = f"{stream}.{SUBJECT}".encode()
    frames = [b"PUB %s acks %d\r\n%s\r\n" % (subject, len(body), body) for body in payloads]
    with socket.create_connection((HOST, server.port), 60) as connection:
        connection.sendall(b'CONNECT {"verbose":false}\r\nSUB acks 1\r\n')
        for first in range(0, count, WINDOW):
            some = min(WINDOW, count - first)
            connection.sendall(
                b"".join(frames[(first + at) % len(frames)] for at in range(some))
            )
            _acknowledged(connection, some)


def _acknowledged(connection: socket.socket, count: int) -> None:
    """Wait for so many acks."""
    rest = b""
    while count:
        data = connection.recv(1 << 18)
        if not data:
            raise RuntimeError("the server has closed the connection")
        *lines, rest = (rest + data).split(b"\r\n")
        for line in lines:
            if line.startswith(b"{"):
                if b'"error"' in line:
                    raise RuntimeError(line.decode())
                count -= 1
            elif line == b"PING":
                connection.sendall(b"PONG\r\n")
