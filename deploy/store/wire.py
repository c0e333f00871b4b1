"""A small blocking NATS client: connects, publishes, asks, and takes what comes.

For commands that run for a moment and need nothing else from a client library.
"""

import base64
import json
import socket
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from headwater.edge.version import VERSION
from headwater.security import creds as creds_files
from headwater.security.tls import client_context

DEFAULT_PORT = 4222
LINE_MAX = 1 << 20
"""Bytes that may be waiting for the end of a line."""
FILL_BYTES = 1 << 18


class WireError(Exception):
    """The server refused something, broke the protocol, or did not answer in time."""


@dataclass
class Login:
    """Who connects, beside what the URL says: a creds file, a user with a password, a CA file."""

    creds: str = ""
    user: str = ""
    password: str = ""
    tlsca: str = ""


@dataclass
class Message:
    """One received message. `status` is that of its header line, 0 without one."""

    subject: str
    reply: str
    headers: dict[str, str]
    status: int
    text: str
    """What follows the status."""
    block: bytes
    payload: bytes


class Wire:
    """A connection. `timeout` (seconds) bounds every wait. Raises WireError, OSError."""

    def __init__(self, url: str, login: Login, timeout: float = 10.0) -> None:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        if not parts.hostname:
            raise WireError(f"{url!r} names no host")
        self.timeout = timeout
        self._data = bytearray()
        self._asked = 0
        host = parts.hostname
        self._socket = socket.create_connection((host, parts.port or DEFAULT_PORT), timeout)
        try:
            info = json.loads(self._line().removeprefix(b"INFO "))
            if parts.scheme == "tls" or info.get("tls_required"):
                context = client_context(ca_file=login.tlsca)
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
            self._login(info, login, unquote(parts.username or ""), unquote(parts.password or ""))
            self.inbox = f"_INBOX.hw{time.monotonic_ns():x}"
            self.send(f"SUB {self.inbox}.> 1\r\nPING\r\n".encode())
            while self._line() != b"PONG":
                pass
        except BaseException:
            self.close()
            raise
        self.payload_max = int(info.get("max_payload", 1 << 20))

    def _login(self, info: dict[str, Any], login: Login, user: str, password: str) -> None:
        fields: dict[str, Any] = {
            "verbose": False, "pedantic": False, "lang": "headwater", "version": VERSION,
            "protocol": 1, "headers": True, "no_responders": True, "name": "headwater store",
        }  # fmt: skip
        user, password = login.user or user, login.password or password
        if login.creds:
            found = creds_files.read(login.creds)
            signature = found.key_pair().sign(info.get("nonce", "").encode())
            fields["jwt"] = found.token
            fields["sig"] = base64.urlsafe_b64encode(signature).decode().rstrip("=")
        elif user:
            fields.update({"user": user, "pass": password} if password else {"auth_token": user})
        self.send(f"CONNECT {json.dumps(fields)}\r\n".encode())

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Write all bytes."""
        self._socket.sendall(data)

    def publish(self, subject: str, payload: bytes, reply: str = "") -> None:
        """One message."""
        head = f"PUB {subject} {reply} {len(payload)}\r\n".replace("  ", " ")
        self.send(head.encode() + payload + b"\r\n")

    def subject(self) -> str:
        """A fresh subject on which this client listens."""
        self._asked += 1
        return f"{self.inbox}.{self._asked}"

    def ask(self, subject: str, payload: bytes = b"") -> Message:
        """Ask and wait for the answer; messages for others are dropped."""
        reply = self.subject()
        self.publish(subject, payload, reply)
        while True:
            message = self.next()
            if message.subject == reply:
                if message.status == 503 and not message.payload:
                    raise WireError(f"nobody answers on {subject}")
                return message

    def api(self, name: str, body: object = None) -> dict[str, Any]:
        """A call below `$JS.API.`. Raises WireError with the description of its error."""
        payload = b"" if body is None else json.dumps(body).encode()
        answer: dict[str, Any] = json.loads(self.ask(f"$JS.API.{name}", payload).payload)
        return checked(answer)

    def next(self) -> Message:
        """The next message."""
        while True:
            line = self._line()
            if line == b"PING":
                self.send(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                raise WireError(line[5:].decode("utf-8", "replace").strip("'"))
            elif line.startswith((b"MSG ", b"HMSG ")):
                return self._message(line.decode().split(" "))

    def _message(self, words: list[str]) -> Message:
        with_headers = words[0] == "HMSG"
        sizes = 2 if with_headers else 1
        head = int(words[-2]) if with_headers else 0
        total = int(words[-1])
        reply = words[3] if len(words) > 3 + sizes else ""
        data = self._take(total + 2)[:total]
        status, text, headers = parse_block(data[:head])
        return Message(words[1], reply, headers, status, text, data[:head], data[head:])

    def _fill(self) -> None:
        try:
            data = self._socket.recv(FILL_BYTES)
        except TimeoutError as error:
            raise WireError(f"the server did not answer within {self.timeout:g} s") from error
        if not data:
            raise WireError("the server closed the connection")
        self._data += data

    def _line(self) -> bytes:
        while (end := self._data.find(b"\r\n")) < 0:
            if len(self._data) > LINE_MAX:
                raise WireError("the server sent a line that is too long")
            self._fill()
        line = bytes(self._data[:end])
        del self._data[: end + 2]
        if line.startswith(b"-ERR"):
            raise WireError(line[5:].decode("utf-8", "replace").strip("'"))
        return line

    def _take(self, size: int) -> bytes:
        while len(self._data) < size:
            self._fill()
        data = bytes(self._data[:size])
        del self._data[:size]
        return data


def parse_block(block: bytes) -> tuple[int, str, dict[str, str]]:
    """Status, its text, and the headers of a header block."""
    lines = block.decode("utf-8", "surrogateescape").split("\r\n")
    words = lines[0].split(" ", 2)
    status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
    rows = [line.partition(":") for line in lines[1:] if ":" in line]
    return status, words[2] if len(words) > 2 else "", {k: v.strip() for k, _, v in rows}


def checked(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without error. Raises WireError."""
    error = answer.get("error")
    if error:
        raise WireError(str(error.get("description", error)))
    return answer
