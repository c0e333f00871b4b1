"""HTTP/1.1 connections to the monitoring port: bounded in number, in bytes and in patience.

Only what a monitoring port needs: requests whose bodies are ignored, answered in their order, on
connections that last. What is no HTTP gets 400 and ends; so do ambiguous bodies.
"""

import asyncio
import logging
import re
import socket
import ssl
import time
from collections.abc import Callable
from typing import NamedTuple, cast
from urllib.parse import parse_qsl, unquote, urlsplit

log = logging.getLogger("headwater.monitor")

VISITORS_MAX = 256
"""Connections at a time; a further one is closed at once."""

HEAD_MAX = 16 << 10
"""Bytes of a request's first line and headers."""

BODY_MAX = 64 << 10
"""Longest body that is read (and ignored)."""

REQUEST_S = 5.0
"""From the begin of a connection to its first complete request; TLS has as long before that."""

KEEP_ALIVE_S = 15.0
"""From an answer to the next complete request; also how long a receiver may take nothing."""

LINGER_S = 1.0
"""How long what nobody reads may still come, so that no reset overtakes the answer."""

_REASONS = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 413: "Content Too Large",
    431: "Request Header Fields Too Large", 500: "Internal Server Error",
    503: "Service Unavailable",
}
_START = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\x00]*?)[ \t]*")


class Answer(NamedTuple):
    """What is sent back; `headers` without those about length, date and connection."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...]


Answerer = Callable[[str, dict[str, str]], Answer]
"""Makes the answer to a path and its parameters; must not raise."""


class Request(NamedTuple):
    """The head of a request."""

    method: str
    path: str
    query: dict[str, str]
    keeps: bool
    """Whether the connection lasts after the answer."""
    body_bytes: int


class Malformed(Exception):
    """A request that is not answered: the status it gets, and why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Visitor(asyncio.Protocol):
    """One connection; it ends by itself when it asks for nothing, or takes nothing."""

    def __init__(self, visitors: "Visitors") -> None:
        self._visitors = visitors
        self._transport: asyncio.Transport
        self._data = bytearray()
        self._skip = 0
        """Bytes of a body that are still to come."""
        self._ending = self._full = False
        self._unsent = 0
        self._timer: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands, TLS included."""
        self._transport = cast(asyncio.Transport, transport)
        self._visitors.there.add(self)
        self._timer = self._visitors.loop.call_later(REQUEST_S, self._lose_patience)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone."""
        self._timer.cancel()
        self._visitors.there.discard(self)

    def data_received(self, data: bytes) -> None:
        """Bytes came: answer every request that is complete."""
        if not self._ending:
            self._data += data
            self._go_on()

    def pause_writing(self) -> None:
        """The peer takes its answers too slowly for more of them."""
        self._full = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The peer has taken its answers."""
        self._full = False
        self._transport.resume_reading()
        self._go_on()

    def end(self) -> None:
        """Close; what is owed is still sent."""
        self._ending = True
        self._transport.close()

    def _go_on(self) -> None:
        while self._data and not self._full and not self._ending:
            if self._skip:
                gone = min(self._skip, len(self._data))
                del self._data[:gone]
                self._skip -= gone
                continue
            try:
                request = self._next()
            except Malformed as error:
                self._refuse(error)
                return
            if request is None:
                return
            self._skip = request.body_bytes
            self._send(request, self._visitors.answer(request.path, request.query))

    def _next(self) -> Request | None:
        """Take the next head; None when it is not complete. Raises Malformed."""
        end = self._data.find(b"\r\n\r\n", 0, HEAD_MAX)
        if end < 0:
            if len(self._data) >= HEAD_MAX:
                raise Malformed(431, f"more than {HEAD_MAX} bytes of headers")
            return None
        head = bytes(self._data[:end])
        del self._data[: end + 4]
        return request_of(head)

    def _send(self, request: Request, answer: Answer) -> None:
        body = b"" if request.method == "HEAD" else answer.body
        self._transport.write(_head(answer, request.keeps) + body)
        if request.keeps:
            self._wait(KEEP_ALIVE_S, self._lose_patience)
        else:
            self._linger()

    def _refuse(self, error: Malformed) -> None:
        place = self._transport.get_extra_info("peername") or ("unknown", 0)
        log.warning(
            "%s:%s - malformed request to the monitoring port: %s", place[0], place[1], error
        )
        text = f"{error.status} {_REASONS[error.status]}: {error}\n".encode()
        answer = Answer(error.status, text, (("Content-Type", "text/plain; charset=utf-8"),))
        self._transport.write(_head(answer, False) + text)
        self._linger()

    def _linger(self) -> None:
        """Say that nothing follows, and discard for a while what still comes."""
        self._ending = True
        self._data.clear()
        if self._transport.can_write_eof():
            self._transport.write_eof()
            self._wait(LINGER_S, self._lose_patience)
        else:
            self._transport.close()

    def _wait(self, seconds: float, action: Callable[[], None]) -> None:
        self._timer.cancel()
        self._timer = self._visitors.loop.call_later(seconds, action)

    def _lose_patience(self) -> None:
        """End the connection, unless the peer is still taking what it asked for."""
        unsent = self._transport.get_write_buffer_size()
        if 0 < unsent != self._unsent:
            self._unsent = unsent
            self._wait(KEEP_ALIVE_S, self._lose_patience)
        else:
            self._ending = True
            self._transport.abort()


def request_of(head: bytes) -> Request:
    """The request with this head, which has no empty line behind it. Raises Malformed."""
    first, *lines = head.lstrip(b"\r\n").split(b"\r\n")
    start = _START.fullmatch(first)
    if start is None:
        raise Malformed(400, "no request line")
    fields: dict[bytes, list[bytes]] = {}
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            raise Malformed(400, "a header that is none")
        fields.setdefault(found[1].lower(), []).append(found[2])
    newer = start[3] == b"1"
    if len(fields.get(b"host", ())) != 1 and (newer or b"host" in fields):
        raise Malformed(400, "not exactly one Host header")
    body, known = _body_bytes(fields)
    closes = b"close" in b",".join(fields.get(b"connection", ())).lower()
    try:
        url = urlsplit(start[2].decode("ascii"))
        query = dict(reversed(parse_qsl(url.query, keep_blank_values=True, max_num_fields=100)))
    except ValueError as error:
        raise Malformed(400, "a target that is no path") from error
    return Request(
        start[1].decode(), unquote(url.path), query, newer and known and not closes, body
    )


def _body_bytes(fields: dict[bytes, list[bytes]]) -> tuple[int, bool]:
    """How long the body is, and whether that is known. Raises Malformed."""
    lengths = set(fields.get(b"content-length", ()))
    if b"transfer-encoding" in fields:
        if lengths:
            raise Malformed(400, "a body with a length and an encoding")
        return 0, False
    if not lengths:
        return 0, True
    length = lengths.pop()
    if lengths or not length.isdigit() or len(length) > 19:
        raise Malformed(400, "a Content-Length that is no number")
    if int(length) > BODY_MAX:
        raise Malformed(413, f"a body of more than {BODY_MAX} bytes")
    return int(length), True


def _head(answer: Answer, keeps: bool) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, 'Status')}"]
    lines += [f"{name}: {value}" for name, value in answer.headers]
    lines.append(time.strftime("Date: %a, %d %b %Y %H:%M:%S GMT", time.gmtime()))
    lines.append(f"Content-Length: {len(answer.body)}")
    if not keeps:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


class Visitors:
    """Takes sockets in, and has `answer` asked by them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, answer: Answerer) -> None:
        self.loop = loop
        self.answer = answer
        self.there: set[Visitor] = set()
        self._coming: set[asyncio.Task[None]] = set()

    def take(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        """Serve a socket, over TLS when there is a context."""
        if len(self.there) + len(self._coming) >= VISITORS_MAX:
            sock.close()
            return
        task = self.loop.create_task(self._serve(sock, context))
        self._coming.add(task)
        task.add_done_callback(self._coming.discard)

    async def _serve(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        try:
            await self.loop.connect_accepted_socket(
                lambda: Visitor(self),
                sock,
                ssl=context,
                ssl_handshake_timeout=None if context is None else REQUEST_S,
            )
        except (OSError, TimeoutError) as error:
            log.debug("a connection to the monitoring port failed: %s", error)
            sock.close()

    def stop(self) -> None:
        """End every connection; what is owed is still sent."""
        for task in list(self._coming):
            task.cancel()
        for visitor in list(self.there):
            visitor.end()
