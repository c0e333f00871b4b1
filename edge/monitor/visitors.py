"""HTTP/1.1 connections to the monitoring port: bounded in number, in bytes and in patience.

The protocol is h11's, which imports in no time. Bodies of requests are read and ignored; what is no
HTTP is answered with the status that says so, and ends.
"""

import asyncio
import http
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

from headwater.edge.wire.http_heads import HEAD_MAX, HeadCount, HeadRoom, HeadTooLarge, check_fields

log = logging.getLogger("headwater.monitor")

VISITORS_MAX = 256
"""Connections at a time; a further one is closed at once."""

BODY_MAX = 64 << 10
"""Longest body that is read (and ignored)."""

REQUEST_S = 5.0
"""From the begin of a connection to its first complete request; TLS has as long before that."""

KEEP_ALIVE_S = 15.0
"""From an answer to the next complete request; also how long a receiver may take nothing."""

LINGER_S = 1.0
"""How long what nobody reads may still come, so that no reset overtakes the answer."""

class Answer(NamedTuple):
    """What is sent back; `headers` without those about length, date and connection."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...]


Answerer = Callable[[str, dict[str, str]], Answer | Awaitable[Answer]]
"""Makes the answer to a path and its parameters, at once or later; must not raise."""


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
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MAX)
        self._head = HeadCount(visitors.heads)
        self._request: h11.Request | None = None
        self._body_bytes = 0
        self._ending = self._full = False
        self._unsent = 0
        self._timer: asyncio.TimerHandle
        self._coming: asyncio.Future[Answer] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands, TLS included."""
        self._transport = cast(asyncio.Transport, transport)
        self._visitors.there.add(self)
        self._timer = self._visitors.loop.call_later(REQUEST_S, self._lose_patience)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone."""
        self._timer.cancel()
        if self._coming is not None:
            self._coming.cancel()
        self._head.end()
        self._visitors.there.discard(self)

    def data_received(self, data: bytes) -> None:
        """Bytes came: answer every request that is complete."""
        if self._ending:
            return
        try:
            if self._http.their_state is h11.IDLE:
                self._head.add(data)
        except HeadTooLarge as error:
            self._refuse(Malformed(431, str(error)))
            return
        self._http.receive_data(data)
        self._go_on()

    def pause_writing(self) -> None:
        """The peer takes its answers too slowly for more of them."""
        self._full = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The peer has taken its answers."""
        self._full = False
        if self._coming is None:
            self._transport.resume_reading()
            self._go_on()

    def end(self) -> None:
        """Close; what is owed is still sent, but for an answer that is yet to come."""
        self._ending = True
        if self._coming is not None:
            self._coming.cancel()
        self._transport.close()

    def _go_on(self) -> None:
        while not self._full and not self._ending:
            try:
                event = self._http.next_event()
                if isinstance(event, h11.Request):
                    self._head.end()
                    check_fields(len(event.headers))
                    self._request = checked(event)
                    self._body_bytes = 0
                elif isinstance(event, h11.Data):
                    self._count(len(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    self._answer()
                else:
                    return
            except h11.RemoteProtocolError as error:
                self._refuse(Malformed(error.error_status_hint, str(error)))
            except HeadTooLarge as error:
                self._refuse(Malformed(431, str(error)))
            except Malformed as error:
                self._refuse(error)

    def _count(self, more: int) -> None:
        self._body_bytes += more
        if self._body_bytes > BODY_MAX:
            raise Malformed(413, f"a body of more than {BODY_MAX} bytes")

    def _answer(self) -> None:
        """Answer the request that is complete. Raises Malformed."""
        assert self._request is not None
        path, query = target_of(self._request)
        answer = self._visitors.answer(path, query)
        if isinstance(answer, Answer):
            self._send_whole(answer)
            return
        self._timer.cancel()
        self._transport.pause_reading()
        self._coming = asyncio.ensure_future(answer)
        self._coming.add_done_callback(self._send_late)

    def _send_late(self, coming: "asyncio.Future[Answer]") -> None:
        """An answer that took a while has come; nothing was read meanwhile."""
        self._coming = None
        if coming.cancelled() or self._ending:
            return
        self._transport.resume_reading()
        self._send_whole(coming.result())
        self._go_on()

    def _send_whole(self, answer: Answer) -> None:
        self._send(answer)
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
            self._wait(KEEP_ALIVE_S, self._lose_patience)
        else:
            self._linger()

    def _send(self, answer: Answer, *more: tuple[str, str]) -> None:
        headers = [
            *answer.headers,
            ("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())),
            ("Content-Length", str(len(answer.body))),
            *more,
        ]
        reason = http.HTTPStatus(answer.status).phrase
        head = h11.Response(status_code=answer.status, reason=reason, headers=headers)
        body = b"" if self._is_head() else answer.body
        events = (head, h11.Data(data=body), h11.EndOfMessage())
        self._transport.write(b"".join(self._http.send(event) or b"" for event in events))

    def _is_head(self) -> bool:
        return self._request is not None and self._request.method == b"HEAD"

    def _refuse(self, error: Malformed) -> None:
        address = self._transport.get_extra_info("peername") or ("unknown", 0)
        log.warning(
            "%s:%s - malformed request to the monitoring port: %s", address[0], address[1], error
        )
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            text = f"{error.status} {http.HTTPStatus(error.status).phrase}: {error}\n".encode()
            kind = ("Content-Type", "text/plain; charset=utf-8")
            self._send(Answer(error.status, text, (kind,)), ("Connection", "close"))
        self._linger()

    def _linger(self) -> None:
        """Say that nothing follows, and discard for a while what still comes."""
        self._ending = True
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


def checked(request: h11.Request) -> h11.Request:
    """A request of a version that is spoken here, whose body has one length at most, and not more
    than is read. Raises Malformed."""
    if request.http_version not in (b"1.0", b"1.1"):
        raise Malformed(505, "HTTP/1.0 and HTTP/1.1 are spoken here")
    names = [name for name, _ in request.headers]
    if b"transfer-encoding" in names and b"content-length" in names:
        raise Malformed(400, "a body with a length and an encoding")
    for name, value in request.headers:
        if name == b"content-length" and int(value) > BODY_MAX:
            raise Malformed(413, f"a body of more than {BODY_MAX} bytes")
    return request


def target_of(request: h11.Request) -> tuple[str, dict[str, str]]:
    """Path and parameters that a request asks for. Raises Malformed."""
    try:
        url = urlsplit(request.target.decode("ascii"))
        query = dict(reversed(parse_qsl(url.query, keep_blank_values=True, max_num_fields=100)))
    except ValueError as error:
        raise Malformed(400, "a target that is no path") from error
    return unquote(url.path), query


class Visitors:
    """Takes sockets in, and has `answer` asked by them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, answer: Answerer) -> None:
        self.loop = loop
        self.answer = answer
        self.there: set[Visitor] = set()
        self.heads = HeadRoom()
        self._coming: set[asyncio.Task[None]] = set()

    def serve(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
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
