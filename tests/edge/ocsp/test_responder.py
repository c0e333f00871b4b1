"""Responders that answer badly, or not at all."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from headwater.edge.ocsp.responder import ask
from headwater.security.errors import OCSPError
from headwater.security.ocsp.answers import ANSWER_MAX
from tests.measuring import within

HEAD = b"HTTP/1.0 200 OK\r\n"


class Responder:
    """Says something to everybody, and holds the connection open."""

    def __init__(self) -> None:
        self.says = b""
        self.ends = True
        self.asked: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append((await reader.readuntil(b"\r\n")).split(b" ")[0])
        writer.write(self.says)
        if self.ends:
            writer.write_eof()
        await reader.read()
        writer.close()


@pytest.fixture
async def responder() -> AsyncIterator[tuple[Responder, str]]:
    found = Responder()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    yield found, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
    server.close()


@pytest.mark.parametrize(
    "says",
    [
        HEAD + b"\r\nanswer",
        HEAD + b"Content-Length: 6\r\n\r\nanswer",
        HEAD + b"content-length:6 \r\n\r\nanswer and more",
    ],
)
async def test_an_answer(responder: tuple[Responder, str], says: bytes) -> None:
    found, url = responder
    found.says = says
    assert await ask([url], b"question", 5) == b"answer"
    assert found.asked == [b"POST"]


@pytest.mark.parametrize(
    "says",
    [
        b"",
        b"HTTP/1.0 500 No\r\n\r\n",
        b"HTTP/1.0 302 Go\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
        b"SSH-2.0\r\n\r\n",
        HEAD + b"a: " + b"a" * 70_000,
        HEAD + b"\r\n" + bytes(ANSWER_MAX + 1),
        HEAD + b"Content-Length: 999999999\r\n\r\n" + bytes(ANSWER_MAX + 1),
        HEAD + b"Content-Length: 10\r\n\r\nshort",
    ],
)
async def test_what_is_no_answer(responder: tuple[Responder, str], says: bytes) -> None:
    found, url = responder
    found.says = says
    with pytest.raises(OCSPError):
        await ask([url], b"question", 5)
    assert found.asked == [b"POST", b"GET"]


async def test_a_silent_one_is_left_alone(responder: tuple[Responder, str]) -> None:
    found, url = responder
    found.ends = False
    begin = time.monotonic()
    with pytest.raises(OCSPError, match="no answer within"):
        await ask([url], b"question", 0.1)
    assert within(time.monotonic() - begin, 5)


async def test_the_next_one_is_asked(responder: tuple[Responder, str]) -> None:
    found, url = responder
    found.says = HEAD + b"\r\nanswer"
    for bad in ("http://127.0.0.1:1/", "ftp://127.0.0.1/", "http://", "http://[::1"):
        assert await ask([bad, url], b"question", 5) == b"answer"
    with pytest.raises(OCSPError, match="no available"):
        await ask([], b"question", 5)
