"""The HTTP request that opens a WebSocket, and the judgement on it (RFC 6455 §4.2.1). Sans-IO."""

import base64
import binascii
import ipaddress
import re
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from urllib.parse import SplitResult, urlsplit

import h11
from wsproto.utilities import generate_accept_token

from headwater.edge.conf.options import WebSocketOptions
from headwater.edge.websocket.paths import cleaned
from headwater.edge.wire.http_heads import (
    HEAD_MAX,
    HeadCount,
    HeadRoom,
    HeadTooLarge,
    check_fields,
)

DEFLATE_ANSWER = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
HTTP_VERSIONS = frozenset((b"1.0", b"1.1", b"1.2"))
"""What requests may say of themselves. The parser knows no other minor versions than it lists."""

HOST = re.compile(r"[A-Za-z0-9!$%&'()*+,\-.:;=\[\]_~]*")
"""What a Host may hold: letters of host names, addresses and ports."""

BROKEN_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")

ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:(?://[^/]*)?(|/.*)")
"""A target with a scheme, and with a host or none; its path is what is asked for."""

_DEFAULT_PORTS = {"http": 80, "https": 443}


class RefusedError(Exception):
    """A request that opens no WebSocket; the text is for the log, `status` for the peer, and so are
    `more` header lines."""

    def __init__(self, status: HTTPStatus, text: str, more: str = "") -> None:
        super().__init__(f"websocket handshake error: {text}")
        self.status = status
        self.more = more

    def answer(self) -> bytes:
        """The HTTP response."""
        body = self.status.phrase.encode() + b"\n"
        return (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\n"
            f"{self.more}"
            "Content-Type: text/plain; charset=utf-8\r\n"
            "Sec-WebSocket-Version: 13\r\n"
            f"Content-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        ).encode() + body


class Upgrade:
    """A request that may open a WebSocket."""

    def __init__(self, path: str, headers: dict[str, list[str]], *, compression: bool) -> None:
        self.path = path
        self._headers = headers
        self.compression = compression
        self.masked = self.header("nats-no-masking") != "true"
        """Whether the client masks its frames; clients that are no browsers may ask not to."""

    def header(self, name: str) -> str:
        """First value of a header, by its lower-case name; empty when absent."""
        values = self._headers.get(name)
        return values[0] if values else ""

    def cookies(self) -> dict[str, str]:
        """All cookies; those that are malformed are left out."""
        jar: SimpleCookie = SimpleCookie()
        for value in self._headers.get("cookie", []):
            try:
                jar.load(value)
            except CookieError:
                continue
        return {name: morsel.value for name, morsel in jar.items()}

    def forwarded_for(self) -> str:
        """The client's address as a proxy tells it; empty unless it is one."""
        value = self.header("x-forwarded-for")
        try:
            return str(ipaddress.ip_address(value))
        except ValueError:
            return ""

    def answer(self, extra: dict[str, str]) -> bytes:
        """The response that switches protocols; `extra` are configured headers."""
        accept = generate_accept_token(self.header("sec-websocket-key").encode()).decode()
        lines = [
            "HTTP/1.1 101 Switching Protocols",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Accept: {accept}",
        ]
        if self.compression:
            lines.append(f"Sec-WebSocket-Extensions: {DEFLATE_ANSWER}")
        if not self.masked:
            lines.append("Nats-No-Masking: true")
        lines.extend(f"{name}: {value}" for name, value in extra.items())
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


class UpgradeReader:
    """Collects the request's bytes until it can be judged."""

    def __init__(
        self, options: WebSocketOptions, *, secure: bool, room: HeadRoom | None = None
    ) -> None:
        """`room` is what large heads share."""
        self._options = options
        self._secure = secure
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MAX)
        self._head = HeadCount(room or HeadRoom())

    def end(self) -> None:
        """The request is complete, or no longer awaited."""
        self._head.end()

    def feed(self, data: bytes) -> Upgrade | None:
        """The request once it is complete. Raises RefusedError."""
        try:
            self._head.add(data)
            self._http.receive_data(data)
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                check_fields(len(event.headers))
        except HeadTooLarge as error:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise RefusedError(status, str(error)) from error
        except h11.RemoteProtocolError as error:
            raise RefusedError(HTTPStatus(error.error_status_hint), str(error)) from error
        if event is h11.NEED_DATA:
            return None
        if not isinstance(event, h11.Request):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "no request")
        if self._http.trailing_data[0]:
            raise RefusedError(
                HTTPStatus.BAD_REQUEST, "client sent data before handshake is complete"
            )
        return self._judge(event)

    def _judge(self, request: h11.Request) -> Upgrade:
        headers: dict[str, list[str]] = {}
        for name, value in request.headers:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        target = request.target.decode("latin-1")
        _check_form(request, headers, target)
        path, mark, query = _path(target)
        if path != cleaned(path) and request.method != b"CONNECT":
            place = cleaned(path) + mark + query
            raise RefusedError(
                HTTPStatus.TEMPORARY_REDIRECT, f"moved to {place}", f"Location: {place}\r\n"
            )
        if request.method != b"GET":
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "request method must be GET")
        if not headers.get("host", [""])[0].strip():
            raise RefusedError(HTTPStatus.BAD_REQUEST, "'Host' missing in request")
        for field, token in (("upgrade", "websocket"), ("connection", "upgrade")):
            if not _contains(headers, field, token):
                raise RefusedError(
                    HTTPStatus.BAD_REQUEST, f"invalid value for header '{field.title()}'"
                )
        _check_key(headers.get("sec-websocket-key", [""])[0])
        if not _contains(headers, "sec-websocket-version", "13"):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "invalid version")
        check_origin(headers, self._options, secure=self._secure)
        compression = self._options.compression and _offers_deflate(headers)
        return Upgrade(path, headers, compression=compression)


def _path(target: str) -> tuple[str, str, str]:
    """The path of a target, `?` if it has one, and what follows that. Raises RefusedError."""
    path, mark, query = target.partition("?")
    if not path.startswith("/"):
        whole = ABSOLUTE.fullmatch(path)
        if whole is None:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "invalid target")
        path = whole[1]
    return path, mark, query


def _check_form(request: h11.Request, headers: dict[str, list[str]], target: str) -> None:
    """Raises RefusedError for what is HTTP to the parser, but not to nats-server's."""
    if request.http_version not in HTTP_VERSIONS:
        raise RefusedError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "unsupported protocol version")
    if target == "*" or BROKEN_PERCENT.search(target):
        raise RefusedError(HTTPStatus.BAD_REQUEST, "invalid target")
    if not HOST.fullmatch(headers.get("host", [""])[0]):
        raise RefusedError(HTTPStatus.BAD_REQUEST, "malformed Host header")
    if any("\x7f" in value for values in headers.values() for value in values):
        raise RefusedError(HTTPStatus.BAD_REQUEST, "invalid header value")
    if headers.get("expect", ["100-continue"])[0].lower() != "100-continue":
        raise RefusedError(HTTPStatus.EXPECTATION_FAILED, "unknown expectation")


def _contains(headers: dict[str, list[str]], name: str, token: str) -> bool:
    values = ",".join(headers.get(name, [])).split(",")
    return any(value.strip(" \t").lower() == token for value in values)


def _check_key(key: str) -> None:
    if not key:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "key missing")
    try:
        size = len(base64.b64decode(key, validate=True))
    except (binascii.Error, ValueError):
        size = 0
    if size != 16:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "invalid websocket key")


def _offers_deflate(headers: dict[str, list[str]]) -> bool:
    offers = ",".join(headers.get("sec-websocket-extensions", [])).split(",")
    return any(offer.split(";")[0].strip(" \t").lower() == "permessage-deflate" for offer in offers)


def check_origin(
    headers: dict[str, list[str]], options: WebSocketOptions, *, secure: bool
) -> None:
    """Raises RefusedError when the page that opens the connection may not. RFC 6455 §10.2.

    A request without an origin does not come from a page, and passes.
    """
    if not options.same_origin and not options.allowed_origins:
        return
    values = headers.get("origin") or headers.get("sec-websocket-origin") or [""]
    if not values[0]:
        return
    try:
        origin = _origin(urlsplit(values[0]))
        host = _origin(urlsplit(f"{'https' if secure else 'http'}://{headers['host'][0]}"))
        allowed = [_origin(urlsplit(url)) for url in options.allowed_origins]
    except (ValueError, KeyError) as error:
        raise RefusedError(HTTPStatus.FORBIDDEN, f"origin not allowed: {error}") from error
    if options.same_origin and origin != host:
        raise RefusedError(HTTPStatus.FORBIDDEN, "origin not allowed: not same origin")
    if allowed and origin not in allowed:
        raise RefusedError(HTTPStatus.FORBIDDEN, "origin not allowed: not in the allowed list")


def _origin(url: SplitResult) -> tuple[str, str, int]:
    """Scheme, host and port of an origin. Raises ValueError."""
    if not url.hostname:
        raise ValueError("invalid origin")
    port = url.port if url.port is not None else _DEFAULT_PORTS.get(url.scheme, 0)
    return url.scheme, url.hostname, port
