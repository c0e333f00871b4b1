"""One blocking connection to a NATS server, for planning on the driver and reading in a task."""

import json
import secrets
import select
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from headwater.spark.credentials import newest, replaced
from headwater.spark.errors import (
    ApiError,
    AuthError,
    ConnectError,
    ControlLineError,
    ExpiredError,
    PublishError,
)
from headwater.spark.options import Endpoint
from headwater.spark.wire.errors import WireError
from headwater.spark.wire.wire_reader import FRAME, NEED, Frame, WireReader

#: Most API calls that wait for their answers at a time.
PIPELINED = 128

_INBOX_SID = 1
_AUTH_WORDS = (
    "authorization",
    "authentication",
    "permissions violation",
    "user auth",
    "account auth",
)
_EXPIRED_WORDS = ("authentication expired", "authentication revoked")


class Connection:
    """A connected, authenticated client. Rows of the expected subscription go into `wire`.

    When the server refuses us, files of credentials are read again, and what is newer is tried.
    Raises ConnectError when no server answers, AuthError when it refuses us.
    """

    def __init__(self, endpoint: Endpoint, wire: WireReader | None = None) -> None:
        self._endpoint = endpoint
        self.wire = wire if wire is not None else WireReader()
        self.wire.reset()
        self.info: dict[str, Any] = {}
        self._socket: socket.socket | None = None
        self._sids = _INBOX_SID
        self._requests = 0
        self.inbox = f"{endpoint.inbox_prefix}.{secrets.token_hex(11)}"
        self._credentials = newest(endpoint.credentials)
        try:
            self._connect()
        except AuthError:
            before, self._credentials = self._credentials, self._credentials.read_again()
            if self._credentials == before:
                raise
            self.wire.reset()
            self._connect()
            replaced(endpoint.credentials, self._credentials)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; safe to call twice."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def is_idle(self) -> bool:
        """Whether it is open, with the newest credentials, and nothing has come in."""
        if self._socket is None or newest(self._endpoint.credentials) != self._credentials:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return self.wire.advance() == NEED and not poll.poll(0)

    def new_reply(self) -> str:
        """A subject for the answer to one request: no other one of this connection has it."""
        self._requests += 1
        return f"{self.inbox}.{self._requests}"

    def send(self, data: bytes) -> None:
        """Write protocol bytes."""
        if self._socket is None:
            raise ConnectError("the connection is closed")
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise ConnectError(f"cannot write to the server: {error}") from error

    def publish(self, subject: str, payload: bytes, reply: str = "") -> None:
        """Publish one message."""
        address = f"{subject} {reply}" if reply else subject
        self.send(f"PUB {address} {len(payload)}\r\n".encode() + payload + b"\r\n")

    def subscribe(self, subject: str) -> int:
        """Subscribe; returns the subscription's number."""
        self._sids += 1
        self.send(f"SUB {subject} {self._sids}\r\n".encode())
        return self._sids

    def unsubscribe(self, sid: int) -> None:
        """Stop a subscription. Messages that are under way still arrive."""
        self.send(f"UNSUB {sid}\r\n".encode())

    def receive(self, timeout: float) -> None:
        """Read once into the wire reader. Raises ConnectError on timeout or end of file."""
        if self._socket is None:
            raise ConnectError("the connection is closed")
        self._socket.settimeout(max(timeout, 0.001))
        try:
            count = self.wire.receive(self._socket.recv_into)
        except TimeoutError as error:
            raise ConnectError("the server does not answer in time") from error
        except OSError as error:
            raise ConnectError(f"cannot read from the server: {error}") from error
        if count == 0:
            raise ConnectError("the server closed the connection")

    def control(self, frame: Frame) -> bool:
        """Serve a frame that every caller treats alike; True when that was all.

        Raises AuthError, ExpiredError, ControlLineError or ConnectError for the server's -ERR.
        """
        if frame.verb == "PING":
            self.send(b"PONG\r\n")
        elif frame.verb == "INFO":
            self.info = json.loads(frame.payload)
        elif frame.verb == "ERR":
            text = frame.payload.decode("utf-8", "replace")
            if any(words in text.lower() for words in _EXPIRED_WORDS):
                raise ExpiredError(f"the server ended the connection: {text}{self._advice(text)}")
            if text.lower().startswith(_AUTH_WORDS):
                raise AuthError(f"the server refused: {text}{self._advice(text)}")
            if text.lower().startswith("maximum control line"):
                raise ControlLineError(f"the server reported: {text}: raise its max_control_line")
            raise ConnectError(f"the server reported: {text}")
        return bool(frame.verb != "MSG")

    def request(
        self, subject: str, payload: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Frame:
        """Ask and wait for the answer. Rows must be off (`wire.expect(0)`).

        Raises ConnectError on timeout, ApiError 503 when nobody listens on the subject.
        """
        reply = self.new_reply()
        if headers is None:
            self.publish(subject, payload, reply)
        else:
            block = header_block(headers)
            line = f"HPUB {subject} {reply} {len(block)} {len(block) + len(payload)}\r\n"
            self.send(line.encode() + block + payload + b"\r\n")
        deadline = time.monotonic() + self._endpoint.request_timeout
        while True:
            frame = self.next_frame(deadline)
            if self.control(frame) or frame.subject != reply:
                continue
            _check_responder(subject, frame)
            return frame

    def api(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One JetStream API call. Raises ApiError for its error answers."""
        frame = self.request(subject, json.dumps(body).encode() if body is not None else b"")
        return _api_answer(subject, frame)

    def api_all(self, subjects: Sequence[str]) -> list[dict[str, Any] | ApiError]:
        """Many JetStream API calls without bodies, `PIPELINED` at a time; answers in their order.

        Raises ConnectError when no answer comes for as long as one call may take.
        """
        answers: list[dict[str, Any] | ApiError] = []
        for at in range(0, len(subjects), PIPELINED):
            answers += self._api_batch(subjects[at : at + PIPELINED])
        return answers

    def _api_batch(self, subjects: Sequence[str]) -> list[dict[str, Any] | ApiError]:
        replies: dict[str, int] = {}
        for index, subject in enumerate(subjects):
            reply = self.new_reply()
            replies[reply] = index
            self.publish(subject, b"", reply)
        found: dict[int, dict[str, Any] | ApiError] = {}
        deadline = time.monotonic() + self._endpoint.request_timeout
        while len(found) < len(subjects):
            frame = self.next_frame(deadline)
            if self.control(frame) or frame.subject not in replies:
                continue
            index = replies[frame.subject]
            try:
                found[index] = _api_answer(subjects[index], frame)
            except ApiError as error:
                found[index] = error
            deadline = time.monotonic() + self._endpoint.request_timeout
        return [found[index] for index in range(len(subjects))]

    def store(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        """Publish one message to a stream; its answer, which may have an "error"."""
        answer: dict[str, Any] = json.loads(self.request(subject, payload, headers).payload)
        return answer

    def next_frame(self, deadline: float) -> Frame:
        """The next frame, rows being off. Raises ConnectError at the monotonic time `deadline`."""
        while True:
            answer = self.wire.advance()
            if answer == FRAME:
                frame: Frame = self.wire.frame
                return frame
            if answer != NEED:
                raise WireError("rows arrived while none were expected")
            left = deadline - time.monotonic()
            if left <= 0:
                raise ConnectError("the server does not answer in time")
            self.receive(left)

    def _connect(self) -> None:
        problems: list[str] = []
        for host, port, tls in self._endpoint.servers:
            try:
                self._open(host, port, tls or self._endpoint.tls)
                return
            except ExpiredError as error:
                self.close()
                raise AuthError(str(error)) from error
            except (OSError, ConnectError, WireError) as error:
                problems.append(f"{host}:{port}: {error}")
                self.close()
                self.wire.reset()
            except AuthError:
                self.close()
                raise
        raise ConnectError(
            f"cannot connect to {'; '.join(problems)}: check option 'servers' (--server), and "
            "that a server runs there"
        )

    def _open(self, host: str, port: int, tls: bool) -> None:
        limit = self._endpoint.connect_timeout
        raw = socket.create_connection((host, port), timeout=limit)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = raw
        deadline = time.monotonic() + limit
        if self._endpoint.tls_first:
            self._upgrade(host)
        frame = self.next_frame(deadline)
        if frame.verb != "INFO":
            raise WireError("the server did not start with INFO")
        self.control(frame)
        secured = self._endpoint.tls_first
        if not secured and (tls or self.info.get("tls_required")):
            self._upgrade(host)
            secured = True
        self.send(self._greeting(secured))
        while True:
            frame = self.next_frame(deadline)
            if frame.verb == "PONG":
                break
            self.control(frame)

    def _greeting(self, secured: bool) -> bytes:
        fields: dict[str, Any] = {
            "verbose": False,
            "pedantic": False,
            "tls_required": secured,
            "name": "headwater-spark",
            "lang": "python-spark",
            "version": "1",
            "protocol": 1,
            "headers": True,
            "no_responders": True,
        }
        fields.update(self._credentials.connect_fields(str(self.info.get("nonce", ""))))
        answers = f"SUB {self.inbox}.* {_INBOX_SID}\r\n".encode()
        return b"CONNECT " + json.dumps(fields).encode() + b"\r\n" + answers + b"PING\r\n"

    def _advice(self, text: str) -> str:
        """What to do about a refusal."""
        if text.lower().startswith("permissions"):
            return ": let the user's permissions allow it"
        if ended := self._credentials.expired():
            paths = [path for _, path in self._credentials.origin]
            place = f"into {paths[0]}" if paths else "into the option 'credentials'"
            return f": the user JWT expired at {ended}. Put a newer one {place}, and start again"
        return ": check user and password, token or credentials file"

    def _upgrade(self, host: str) -> None:
        endpoint = self._endpoint
        context = ssl.create_default_context(cadata=endpoint.tls_ca or None)
        if endpoint.tls_cert_file:
            try:
                context.load_cert_chain(endpoint.tls_cert_file, endpoint.tls_key_file or None)
            except OSError as error:
                raise AuthError(
                    f"cannot use tlsCertFile {endpoint.tls_cert_file} with its key: {error}; "
                    "both must be on every executor"
                ) from error
        if self._socket is None:
            raise ConnectError("the connection is closed")
        self._socket = context.wrap_socket(self._socket, server_hostname=host)


def header_block(headers: Mapping[str, str]) -> bytes:
    """Headers as on the wire. Raises PublishError for names and values that cannot be sent."""
    lines = ["NATS/1.0"]
    for name, value in headers.items():
        if not name or set(name) & set(":\r\n") or set(value) & set("\r\n"):
            raise PublishError(f"header {name!r} cannot be sent: no colon or line end in it")
        lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode()


def _check_responder(subject: str, frame: Frame) -> None:
    """Raises ApiError 503 for the server's word that nobody listens."""
    if frame.headers.startswith(b"NATS/1.0 503"):
        raise ApiError(503, 0, f"nobody answers on {subject}")


def _api_answer(subject: str, frame: Frame) -> dict[str, Any]:
    """What a JetStream API call on `subject` answered. Raises ApiError for its error answers."""
    _check_responder(subject, frame)
    try:
        answer = json.loads(frame.payload)
    except ValueError as error:
        raise ApiError(500, 0, f"{subject} answered what is not JSON") from error
    if not isinstance(answer, dict):
        raise ApiError(500, 0, f"{subject} answered what is not an object")
    problem = answer.get("error")
    if problem:
        raise ApiError(
            int(problem.get("code", 500)),
            int(problem.get("err_code", 0)),
            str(problem.get("description", "")),
        )
    return answer
