"""A client that reads slowly: what comes waits in a small buffer, and then at the server. Numbered
messages show that each comes once and in order."""

import asyncio
import socket

SIZE = 4000
"""Bytes of each message."""
BUFFER = 16 << 10


async def opened(
    port: int, more: bytes, login: bytes = b""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A raw client that sends `more` behind its CONNECT, in which are the fields of `login`. It
    reads nothing by itself but what a small buffer holds."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=BUFFER)
    writer.write(b'CONNECT {%b"verbose":false}\r\n' % login + more)
    return reader, writer


async def publish(writer: asyncio.StreamWriter, subjects: list[bytes], count: int) -> None:
    """Numbered messages on these subjects in turn."""
    for number in range(count):
        text = b"%d " % number
        subject = subjects[number % len(subjects)]
        writer.write(b"PUB %b %d\r\n%b\r\n" % (subject, SIZE, text.ljust(SIZE, b".")))
        await writer.drain()


async def numbers(reader: asyncio.StreamReader, count: int) -> list[int]:
    """The numbers of so many messages."""
    found: list[int] = []
    while len(found) < count:
        line = await reader.readuntil(b"\r\n")
        if line.startswith(b"MSG "):
            body = await reader.readexactly(SIZE + 2)
            found.append(int(body.split(b" ")[0]))
    return found
