"""The lines of the protocol in the log (`-V`, `trace: true`), in the form of nats-server.

A connection that is traced has one `ProtocolLog`, which sees the bytes of both directions between
the socket's filter and the parser: what comes in is logged before it is acted on, what goes out
when the socket takes it. Connections that are not traced have none.
"""

import logging
import re
from collections.abc import Iterator
from typing import Any

from headwater.edge.facts.peer_address import plain_address
from headwater.edge.logging import logs

LINE_MAX = 64 << 10
"""Bytes of one control line that are kept; the rest of it is not shown."""

PAYLOAD_MAX = 8 << 10
"""Bytes of one payload that are shown where no shorter length is configured."""

log = logging.getLogger("headwater.protocol")

_CLIENT, _LEAF = 0, 1
"""The kinds of connections, as `kernel.pxd` numbers them."""
_PAYLOADS = frozenset((b"PUB", b"HPUB", b"MSG", b"HMSG", b"RMSG", b"LMSG", b"PMSG"))
"""Verbs whose last argument is the size of what follows."""
_VERBS = _PAYLOADS | frozenset(
    (b"SUB", b"UNSUB", b"PING", b"PONG", b"RS+", b"RS-", b"LS+", b"LS-", b"A+", b"A-")
)
_SECRETS = re.compile(
    rb'("?\b(?:auth_token\w*|pass\w*|proxy_sig|nkey|sig|jwt)"?\s*[:=]\s*)'
    rb'(?:"(?:[^"\\]|\\.)*"?|[\[{][^\r\n]*|[^",\r\n}]*)',
    re.IGNORECASE,
)
_HIDDEN_LETTERS = re.compile(rb"\\u00[4-7]")
"""Letters that are written as escapes: no client does that, and a field's name may hide so."""
_ESCAPES = {
    "\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v",
    '"': r"\"", "\\": r"\\",
}


class ProtocolLog:
    """What one connection (`ClientConn` or `Link`) says and hears, in the log.

    One that begins in the middle of a connection starts at the next line that it knows.
    """

    def __init__(self, conn: Any) -> None:
        self._conn = conn
        self._address = peer_label(conn)
        self._in = _Direction(self, "<<-")
        self._out = _Direction(self, "->>")

    def heard(self, data: bytes) -> Iterator[bytes]:
        """`data` that came in, in pieces that are each logged before they are yielded."""
        return self._in.pieces(data)

    def said(self, data: bytes) -> None:
        """Log what the socket has taken."""
        for _ in self._out.pieces(data):
            pass

    def unsubscribed(self, sid: bytes) -> None:
        """Log that a subscription is no more."""
        self.line("<->", f"[DELSUB {_text(sid)}]")

    def line(self, arrow: str, text: str) -> None:
        """Log one line of either direction."""
        log.log(logs.TRACE, "%s%s - %s %s", self._address, _who(self._conn), arrow, text)


class _Direction:
    """The frames of one direction, which come in parts of any size."""

    def __init__(self, owner: ProtocolLog, arrow: str) -> None:
        self._owner = owner
        self._arrow = arrow
        self._line = bytearray()
        self._payload = bytearray()
        self._left = 0
        """Bytes of a payload and its line end that are still to come; 0 within a line."""
        self._size = self._header = 0

    def pieces(self, data: bytes) -> Iterator[bytes]:
        at = 0
        while at < len(data):
            if self._left:
                end = min(len(data), at + self._left)
                self._log_payload(data[at:end])
            else:
                end = data.find(b"\n", at) + 1 or len(data)
                self._log_line(data[at:end])
            yield data[at:end]
            at = end

    def _log_line(self, part: bytes) -> None:
        self._line += part[: LINE_MAX - len(self._line)]
        if not part.endswith(b"\n"):
            return
        line = bytes(self._line).rstrip(b"\r\n")
        self._line.clear()
        verb, _, arguments = line.replace(b"\t", b" ", 1).partition(b" ")
        verb = verb.upper()
        arguments = arguments.lstrip(b" \t")
        shown = self._shown(verb, arguments)
        if shown:
            self._owner.line(self._arrow, f"[{_text(shown)}]")
        if verb in _PAYLOADS:
            self._expect(verb, arguments.split())

    def _shown(self, verb: bytes, arguments: bytes) -> bytes:
        """What is logged of a line; b"" for one that is not."""
        if verb in _VERBS:
            return (verb + b" " + arguments).rstrip()
        if verb == b"CONNECT" and self._arrow == "<<-":
            return verb + b" " + without_secrets(arguments)
        if verb == b"+OK" and self._arrow == "->>":
            return b"OK"
        if verb == b"-ERR" and self._arrow == "->>":
            return verb + b" " + arguments.strip(b"'")
        return b""

    def _expect(self, verb: bytes, words: list[bytes]) -> None:
        """Remember the size of the payload that follows."""
        numbers = [int(word) if word[:19].isdigit() and len(word) < 19 else 0 for word in words]
        self._size = numbers[-1] if numbers else 0
        self._header = numbers[-2] if verb[:1] == b"H" and len(numbers) > 1 else 0
        self._left = self._size + 2 if numbers else 0
        self._payload.clear()

    def _log_payload(self, part: bytes) -> None:
        self._left -= len(part)
        settings = logs.in_force()
        limit = settings.max_traced_message or PAYLOAD_MAX
        shown = self._size
        if settings.trace_headers:
            # Without the empty line that ends a header block.
            shown = max(0, self._header - 4)
        self._payload += part[: max(0, min(shown, limit) - len(self._payload))]
        if self._left == 0 and shown:
            more = "..." if shown > limit else ""
            self._owner.line(self._arrow, f'MSG_PAYLOAD: ["{_quoted(self._payload)}{more}"]')
            self._payload.clear()


def without_secrets(fields: bytes) -> bytes:
    """The fields of CONNECT as they are shown; tokens of users are secrets here, too."""
    if _HIDDEN_LETTERS.search(fields):
        return b"[REDACTED]"
    return _SECRETS.sub(rb'\1"[REDACTED]"', fields)


def peer_label(conn: Any) -> str:
    """Where the peer is and which kind of connection it has, as `127.0.0.1:4711 - cid:5`. The limit
    of lines counts a line that begins so as the peer's."""
    host, port = _address(conn)
    if ":" in host:
        host = f"[{host}]"
    kind = "rid"
    if conn.kind == _CLIENT:
        kind = "wid" if conn.server.detail(conn).get("kind") == "WEBSOCKET" else "cid"
    elif conn.kind == _LEAF:
        kind = "lid"
    return f"{host}:{port} - {kind}:{conn.cid}"


def _address(conn: Any) -> tuple[str, int]:
    """Host and port of the peer; of a socket that is closed, what they were."""
    try:
        host, port = plain_address(conn.sock.getpeername())[:2]
    except (AttributeError, OSError, ValueError):
        return conn.peer or ("?", 0)
    return host, port


def client_label(conn: Any) -> str:
    """`peer_label` of a client, and what it has told of itself once it has logged in."""
    return f"{peer_label(conn)}{_who(conn)}"


def shown_user(fields: dict[str, Any]) -> str:
    """Whom CONNECT names, as `User "a"`; "" when it names nobody."""
    for field, word in (("user", "User"), ("nkey", "Nkey"), ("jwt", "JWT"), ("auth_token", "")):
        value = fields.get(field)
        if isinstance(value, str) and value:
            # Tokens of users are long, and secrets.
            return f'{word} "{_quoted(value.encode())}"' if word in ("User", "Nkey") else word
    return ""


def _who(conn: Any) -> str:
    """What a client has told of itself, once it has logged in."""
    if conn.kind != _CLIENT or conn.identity is None or not conn.options:
        return ""
    fields = conn.options
    version = fields.get("version")
    software = [f"v{version}" if version else "", fields.get("lang"), fields.get("name")]
    shown = [":".join(str(word) for word in software if word)]
    user = _user(fields, conn.identity.user)
    if user:
        shown.append(f"{conn.identity.account}/{user}")
    return "".join(f' - "{_quoted(text.encode())}"' for text in shown if text)


def _user(fields: dict[str, Any], user: str) -> str:
    if fields.get("nkey"):
        return f"nkey:{fields['nkey']}"
    if fields.get("user"):
        return f"user:{fields['user']}"
    if fields.get("jwt"):
        return f"jwt:{user}"
    return "token" if fields.get("auth_token") else ""


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def _quoted(data: bytes | bytearray) -> str:
    """Bytes as the inside of a quoted string of the Go language."""
    return "".join(_escaped(char) for char in data.decode("utf-8", "surrogateescape"))


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
