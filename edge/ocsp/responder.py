"""Asks OCSP responders over HTTP, within bounds of time and size (RFC 6960, appendix A)."""

import asyncio
import base64
import re
import ssl
from urllib.parse import quote, urlsplit

from headwater.security.errors import OCSPError
from headwater.security.ocsp.answers import ANSWER_MAX

HEAD_MAX = 16 << 10
RESPONDERS_MAX = 4
"""How many of a certificate's responders are asked."""

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})\b")


async def ask(urls: list[str], request: bytes, timeout: float) -> bytes:
    """The answer of the first responder that has one, by POST and, where that fails, by GET.

    `timeout` is in seconds, for each attempt. Raises OCSPError.
    """
    failures = []
    for url in urls[:RESPONDERS_MAX]:
        for method in ("POST", "GET"):
            try:
                async with asyncio.timeout(timeout):
                    return await _exchange(url, method, request)
            except TimeoutError:
                failures.append(f"{url}: no answer within {timeout:g} s")
            except (OSError, ValueError, asyncio.IncompleteReadError) as error:
                failures.append(f"{url}: {error}")
    raise OCSPError("; ".join(failures) or "no available OCSP responders")


async def _exchange(url: str, method: str, request: bytes) -> bytes:
    """One request. Raises OSError, ValueError or IncompleteReadError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("this is no URL of HTTP")
    secure = parts.scheme == "https"
    reader, writer = await asyncio.open_connection(
        parts.hostname,
        parts.port or (443 if secure else 80),
        ssl=ssl.create_default_context() if secure else None,
        limit=HEAD_MAX,
    )
    try:
        writer.write(_request(parts.path, parts.netloc.rpartition("@")[2], method, request))
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise ValueError("the head of the answer is too long") from None
        status = _STATUS_LINE.match(head)
        if status is None or not 200 <= int(status[1]) < 300:
            line, _, _ = head[:80].partition(b"\r\n")
            raise ValueError(f"the responder says {line!r}")
        return await _body(reader, head)
    finally:
        writer.transport.abort()


def _request(path: str, host: str, method: str, request: bytes) -> bytes:
    path = path.rstrip("/")
    lines = [f"Host: {host}", "Accept: application/ocsp-response", "Connection: close"]
    if method == "GET":
        text = quote(base64.b64encode(request).decode(), safe="")
        lines.insert(0, f"GET {path}/{text} HTTP/1.0")
        return "\r\n".join([*lines, "", ""]).encode("ascii")
    lines.insert(0, f"POST {path or '/'} HTTP/1.0")
    lines += ["Content-Type: application/ocsp-request", f"Content-Length: {len(request)}"]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + request


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    length = re.search(rb"(?im)^content-length:[ \t]*(\d{1,9})[ \t]*\r$", head)
    if length is not None and int(length[1]) <= ANSWER_MAX:
        return await reader.readexactly(int(length[1]))
    body = bytearray()
    while len(body) <= ANSWER_MAX:
        piece = await reader.read(ANSWER_MAX)
        if not piece:
            return bytes(body)
        body += piece
    raise ValueError("the answer is too long")
