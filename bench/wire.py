"""A small blocking NATS client in plain Python for everything around a measurement."""

import json
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from bench.servers import HOST

CONNECT = (
    b'CONNECT {"verbose":false,"pedantic":false,"lang":"bench","version":"1","protocol":1,'
    b'"headers":true,"no_responders":true,"echo":true}\r\nPING\r\n'
)
MAX_LINE = 1 << 20
"""Bytes that may be waiting for the end of a line."""

INBOX_SID = "9"


class WireError(Exception):
    """The server said -ERR, broke the protocol, or closed the connection."""


@dataclass(frozen=True)
class Frame:
    """One received message."""

    subject: str
    sid: str
    reply: str
    head: bytes
    body: bytes


class Link:
    """A connected client. `timeout` bounds every single read and write, in seconds.

    The timeouts are those of the socket itself (SO_RCVTIMEO), so its file descriptor can be
    handed to the load generator.
    """

    def __init__(self, port: int, timeout: float = 10.0, host: str = HOST) -> None:
        self._data = b""
        self._pos = 0
        self._requests = 0
        self._inbox = ""
        self.socket = socket.create_connection((host, port), timeout)
        self.socket.settimeout(None)
        limit = struct.pack("ll", int(timeout), int(timeout % 1 * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self.socket.setsockopt(socket.SOL_SOCKET, option, limit)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.info: dict[str, Any] = json.loads(self._line().removeprefix(b"INFO "))
            self.send(CONNECT)
            self.pong()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    @property
    def fd(self) -> int:
        """File descriptor of the blocking socket."""
        return self.socket.fileno()

    def send(self, data: bytes) -> None:
        """Write all bytes."""
        self.socket.sendall(data)

    def flush(self) -> None:
        """Return when the server has taken in everything sent so far."""
        self.send(b"PING\r\n")
        self.pong()

    def subscribe(self, subject: str, sid: str) -> None:
        """Subscribe, and return when the server knows."""
        self.send(f"SUB {subject} {sid}\r\n".encode())
        self.flush()

    def pong(self) -> None:
        """Read until PONG; messages before it are dropped."""
        while self._next() != b"PONG":
            pass

    def frames(self) -> Iterator[Frame]:
        """Messages as they come; ends with `WireError` or `OSError`."""
        while True:
            got = self._next()
            if isinstance(got, Frame):
                yield got

    def request(
        self, subject: str, payload: bytes = b"", headers: dict[str, str] | None = None
    ) -> Frame:
        """Ask and wait for the answer; a "no responders" status raises `WireError`."""
        return next(self.answers(subject, payload, headers))

    def answers(
        self, subject: str, payload: bytes = b"", headers: dict[str, str] | None = None
    ) -> Iterator[Frame]:
        """Ask, and every answer as it comes; whoever has enough stops reading. A "no responders"
        status raises `WireError`."""
        data, inbox = self._question(subject, payload, headers)
        self.send(data)
        for frame in self.frames():
            # What a consumer delivers keeps its own subject.
            delivered = frame.sid == INBOX_SID and frame.reply.startswith("$JS.ACK.")
            if frame.subject == inbox or delivered:
                if frame.head.startswith(b"NATS/1.0 503"):
                    raise WireError(f"{subject}: no responders")
                yield frame

    def requests(self, questions: list[tuple[str, bytes]]) -> Iterator[tuple[int, Frame]]:
        """Ask all at once; the answers, with the number of their question, as they come."""
        numbers: dict[str, int] = {}
        data = []
        for number, (subject, payload) in enumerate(questions):
            question, inbox = self._question(subject, payload)
            numbers[inbox] = number
            data.append(question)
        self.send(b"".join(data))
        frames = self.frames()
        while numbers:
            frame = next(frames)
            if frame.subject in numbers:
                yield numbers.pop(frame.subject), frame

    def _question(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None
    ) -> tuple[bytes, str]:
        """The bytes of a request, and where its answer will come."""
        first = b""
        if not self._inbox:
            self._inbox = f"_INBOX.{id(self):x}"
            first = f"SUB {self._inbox}.* {INBOX_SID}\r\n".encode()
        self._requests += 1
        inbox = f"{self._inbox}.{self._requests}"
        if headers:
            lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
            block = f"NATS/1.0\r\n{lines}\r\n".encode()
            sizes = f"{len(block)} {len(block) + len(payload)}"
            verb, payload = "HPUB", block + payload
        else:
            verb, sizes = "PUB", str(len(payload))
        head = f"{verb} {subject} {inbox} {sizes}\r\n".encode()
        return first + head + payload + b"\r\n", inbox

    def api(self, subject: str, **fields: object) -> dict[str, Any]:
        """A JetStream API call below `$JS.API.`; raises `WireError` with its error."""
        payload = json.dumps(fields).encode() if fields else b""
        answer: dict[str, Any] = json.loads(self.request(f"$JS.API.{subject}", payload).body)
        if "error" in answer:
            raise WireError(f"{subject}: {answer['error']}")
        return answer

    def _fill(self) -> None:
        try:
            chunk = self.socket.recv(262144)
        except BlockingIOError as error:
            raise WireError("timeout") from error
        if not chunk:
            raise WireError("connection closed")
        self._data = self._data[self._pos :] + chunk
        self._pos = 0

    def _line(self) -> bytes:
        while (end := self._data.find(b"\r\n", self._pos)) < 0:
            if len(self._data) - self._pos > MAX_LINE:
                raise WireError("line too long")
            self._fill()
        line = self._data[self._pos : end]
        self._pos = end + 2
        return line

    def _take(self, size: int) -> bytes:
        while len(self._data) - self._pos < size + 2:
            self._fill()
        taken = self._data[self._pos : self._pos + size]
        self._pos += size + 2
        return taken

    def _next(self) -> Frame | bytes:
        line = self._line()
        if line.startswith(b"-ERR"):
            raise WireError(line.decode(errors="replace"))
        if line == b"PING":
            self.send(b"PONG\r\n")
        if not line.startswith((b"MSG ", b"HMSG ")):
            return line
        verb, subject, sid, *rest = line.decode().split(" ")
        head = int(rest[-2]) if verb == "HMSG" else 0
        data = self._take(int(rest[-1]))
        plain = 2 if verb == "HMSG" else 1
        reply = rest[0] if len(rest) > plain else ""
        return Frame(subject, sid, reply, data[:head], data[head:])
