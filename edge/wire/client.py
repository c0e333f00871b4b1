"""A small blocking NATS client: connects, publishes, asks, subscribes, and takes what comes.

For commands that run for a moment, for measurements, and for readers that want the socket; it
imports the standard library and `security` only. Everything asynchronous uses nats-py.

    with Client("nats://one,tls://two:4333", Login(creds="user.creds")) as client:
        print(client.api("STREAM.INFO.ORDERS")["state"])

One connection, one thread, no reconnect: what breaks raises. Messages that come while something
else is waited for are dropped.
"""

import json
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from headwater.edge.facts.reasons import reason
from headwater.edge.wire.login import Login
from headwater.edge.wire.message import Message, MessageReader, WireError, header_block

DEFAULT_PORT = 4222
INBOX_SID = "0"
"""The subscription to this client's own inboxes."""
READ_BYTES = 1 << 18
DENIALS = ("authorization", "authentication", "user auth", "account auth", "permissions violation")
"""How the errors begin that say who is not allowed what."""


class ConnectError(WireError):
    """No server answered, or a connection broke."""


class TimedOut(WireError):
    """The server did not answer in time."""


class Refused(WireError):
    """The server does not allow it: the login, or a permission of it."""


class NoResponders(WireError):
    """Nobody listens on the subject of a request."""


class ApiError(WireError):
    """JetStream's API says no. `code` is as in HTTP, `err_code` JetStream's own number."""

    def __init__(self, code: int, err_code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.err_code = err_code


class Server(NamedTuple):
    """An address, with the login that its URL holds."""

    host: str
    port: int
    tls: bool
    user: str
    password: str

    def login(self, given: Login) -> Login:
        """The login for this server: `given` goes first; a name alone in a URL is a token."""
        if not self.user or given.user or given.token or given.seed or given.creds or given.jwt:
            return given
        if not self.password:
            return replace(given, token=self.user)
        return replace(given, user=self.user, password=self.password)


def parse_servers(urls: str | Sequence[str]) -> list[Server]:
    """Servers of URLs (`nats://`, `tls://` or without a scheme); one text may hold several,
    separated by commas. Raises WireError."""
    texts = urls.split(",") if isinstance(urls, str) else urls
    found = []
    for text in filter(None, (text.strip() for text in texts)):
        parts = urlsplit(text if "://" in text else f"nats://{text}")
        if parts.scheme not in ("nats", "tls"):
            raise WireError(f"a server's URL begins with nats:// or tls://, not {parts.scheme}://")
        try:
            port = parts.port or DEFAULT_PORT
        except ValueError as error:
            raise WireError(f"the port in a server's URL is no port: {error}") from error
        if not parts.hostname:
            raise WireError("a server's URL names no host")
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        found.append(Server(parts.hostname, port, parts.scheme == "tls", user, password))
    if not found:
        raise WireError("no server is named")
    return found


class Client:
    """A connection to the first of `servers` that answers. `timeout` bounds each wait for an
    answer or a message, `connect_timeout` each attempt, in seconds.

    Raises WireError and what is below it here, and SecurityError for a login that is unusable.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        login: Login | None = None,
        *,
        timeout: float = 10.0,
        connect_timeout: float = 0.0,
        name: str = "headwater",
        inbox_prefix: str = "_INBOX",
        api_prefix: str = "$JS.API",
    ) -> None:
        self.timeout = timeout
        self.name = name
        self.api_prefix = api_prefix
        self.info: dict[str, Any] = {}
        """The server's newest INFO."""
        self.inbox = f"{inbox_prefix}.{secrets.token_hex(11)}"
        self.socket: socket.socket
        self._reader = MessageReader()
        self._deadline = 0.0
        self._asked = 0
        self._sids = 0
        self._listens = False
        self._connect(parse_servers(servers), login or Login(), connect_timeout or timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        self.socket.close()

    @property
    def payload_max(self) -> int:
        """Bytes of headers and payload that the server takes in one message."""
        return int(self.info.get("max_payload", 1 << 20))

    # --- what a client says ---

    def send(self, data: bytes) -> None:
        """Write protocol bytes, all of them."""
        try:
            self.socket.settimeout(self.timeout)
            self.socket.sendall(data)
        except TimeoutError as error:
            raise TimedOut(f"the server took nothing for {self.timeout:g} s") from error
        except OSError as error:
            raise ConnectError(f"cannot write to the server: {error}") from error

    def publish(
        self,
        subject: str,
        payload: bytes = b"",
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        """One message. Raises WireError when it is larger than the server takes."""
        self.send(self._publication(subject, payload, reply, headers))

    def _publication(
        self, subject: str, payload: bytes, reply: str, headers: dict[str, str] | None = None
    ) -> bytes:
        block = header_block(headers or {})
        size = len(block) + len(payload)
        if size > self.payload_max:
            raise WireError(f"{subject}: {size} bytes are more than the server takes")
        if not subject or any(not text.isprintable() or " " in text for text in (subject, reply)):
            raise WireError(f"{subject!r} with reply {reply!r} is no place to publish to")
        sizes = f"{len(block)} {size}" if block else str(size)
        words = ["HPUB" if block else "PUB", subject, *filter(None, [reply]), sizes]
        return " ".join(words).encode() + b"\r\n" + block + payload + b"\r\n"

    def subscribe(self, subject: str, sid: str = "") -> str:
        """Subscribe, and return when the server knows. Returns the subscription's number."""
        self._sids += 1
        sid = sid or str(self._sids)
        self.send(f"SUB {subject} {sid}\r\n".encode())
        self.flush()
        return sid

    def unsubscribe(self, sid: str) -> None:
        """Stop a subscription. Messages that are under way still arrive."""
        self.send(f"UNSUB {sid}\r\n".encode())

    def flush(self) -> None:
        """Return when the server has taken in everything sent so far."""
        self.send(b"PING\r\n")
        self._start()
        while self._next_frame() != b"PONG":
            pass

    # --- what comes ---

    def next(self, timeout: float | None = None) -> Message:
        """The next message of any subscription."""
        self._start(timeout)
        return self._message()

    def messages(self) -> Iterator[Message]:
        """Messages as they come; ends with an error."""
        while True:
            yield self.next()

    def new_inbox(self) -> str:
        """A fresh subject on which this client listens."""
        if not self._listens:
            self.send(f"SUB {self.inbox}.* {INBOX_SID}\r\n".encode())
            self._listens = True
        self._asked += 1
        return f"{self.inbox}.{self._asked}"

    def request(
        self, subject: str, payload: bytes = b"", headers: dict[str, str] | None = None
    ) -> Message:
        """Ask and wait for the answer, `timeout` in all. Raises NoResponders, TimedOut."""
        inbox = self.new_inbox()
        self.publish(subject, payload, inbox, headers)
        self._start()
        while True:
            message = self._message()
            if message.subject == inbox:
                return _answered(subject, message)

    def answers(
        self, subject: str, payload: bytes = b"", headers: dict[str, str] | None = None
    ) -> Iterator[Message]:
        """Ask, and every answer as it comes; whoever has enough stops reading. What a consumer
        delivers keeps its own subject, and is an answer, too. Raises NoResponders, TimedOut."""
        inbox = self.new_inbox()
        self.publish(subject, payload, inbox, headers)
        for message in self.messages():
            delivered = message.sid == INBOX_SID and message.reply.startswith("$JS.ACK.")
            if message.subject == inbox or delivered:
                yield _answered(subject, message)

    def requests(self, questions: Sequence[tuple[str, bytes]]) -> Iterator[tuple[int, Message]]:
        """Ask all at once; the answers, with the number of their question, as they come. A question
        that nobody takes is answered with status 503."""
        numbers = {self.new_inbox(): number for number in range(len(questions))}
        self.send(
            b"".join(
                self._publication(*question, inbox)
                for question, inbox in zip(questions, numbers, strict=True)
            )
        )
        while numbers:
            message = self.next()
            if message.subject in numbers:
                yield numbers.pop(message.subject), message

    def api(self, name: str, /, **fields: object) -> dict[str, Any]:
        """A call of JetStream's API: `name` is what follows the prefix, `fields` are the request's.
        Raises ApiError."""
        subject = f"{self.api_prefix}.{name}"
        payload = json.dumps(fields).encode() if fields else b""
        return checked(subject, self.request(subject, payload).payload)

    # --- the connection ---

    def release_socket(self) -> tuple[socket.socket, bytes]:
        """The socket, and what was read of it and is not used: this client is done with it."""
        return self.socket, self._reader.rest()

    def _connect(self, servers: list[Server], login: Login, timeout: float) -> None:
        problems = []
        for server in servers:
            try:
                self._open(server, login, timeout)
                return
            except Refused:
                raise
            except (OSError, WireError) as error:
                problems.append(f"{server.host}:{server.port}: {reason(error)}")
        raise ConnectError("cannot connect to " + "; ".join(problems))

    def _open(self, server: Server, login: Login, timeout: float) -> None:
        self._start(timeout)
        self._reader = MessageReader()
        self.socket = socket.create_connection((server.host, server.port), timeout)
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if login.tls_first:
                self._secure(server.host, login)
            while not self.info:
                self._next_frame()
            wanted = server.tls or login.tls or self.info.get("tls_required")
            if wanted and not login.tls_first:
                self._secure(server.host, login)
            self.send(self._greeting(server.login(login), bool(wanted or login.tls_first)))
            while self._next_frame() != b"PONG":
                pass
        except BaseException:
            self.socket.close()
            self.info = {}
            raise

    def _secure(self, host: str, login: Login) -> None:
        """Speak TLS from here on. What came before in clear text cannot be of a server's."""
        if self._reader.rest():
            raise WireError("the server sent more than INFO in clear text")
        self.socket = login.context().wrap_socket(self.socket, server_hostname=host)

    def _greeting(self, login: Login, secured: bool) -> bytes:
        fields: dict[str, Any] = {
            "verbose": False, "pedantic": False, "tls_required": secured, "name": self.name,
            "lang": "headwater", "version": "1", "protocol": 1, "headers": True,
            "no_responders": True, "echo": True,
        }  # fmt: skip
        fields.update(login.connect_fields(str(self.info.get("nonce", ""))))
        return b"CONNECT " + json.dumps(fields).encode() + b"\r\nPING\r\n"

    def _start(self, timeout: float | None = None) -> None:
        """A wait begins: it ends `timeout` seconds from now."""
        self._deadline = time.monotonic() + (self.timeout if timeout is None else timeout)

    def _message(self) -> Message:
        while True:
            taken = self._next_frame()
            if isinstance(taken, Message):
                return taken

    def _next_frame(self) -> Message | bytes:
        """What comes next; what the server wants of every client is served on the way."""
        while (taken := self._reader.next()) is None:
            self._fill()
        if isinstance(taken, Message):
            return taken
        if taken == b"PING":
            self.send(b"PONG\r\n")
        elif taken.startswith(b"INFO "):
            self._hear(taken[5:])
        elif taken.startswith(b"-ERR"):
            text = taken[4:].decode("utf-8", "replace").strip(" '")
            refused = text.lower().startswith(DENIALS)
            raise Refused(text) if refused else WireError(text)
        return taken

    def _hear(self, text: bytes) -> None:
        try:
            info = json.loads(text)
        except ValueError as error:
            raise WireError("the server's INFO is not JSON") from error
        if not isinstance(info, dict):
            raise WireError("the server's INFO is no object")
        self.info = info

    def _fill(self) -> None:
        left = self._deadline - time.monotonic()
        try:
            if left <= 0:
                raise TimeoutError
            self.socket.settimeout(left)
            data = self.socket.recv(READ_BYTES)
        except TimeoutError as error:
            raise TimedOut("the server did not answer in time") from error
        except OSError as error:
            raise ConnectError(f"cannot read from the server: {error}") from error
        if not data:
            raise ConnectError("the server closed the connection")
        self._reader.feed(data)


def _answered(subject: str, message: Message) -> Message:
    if message.status == 503 and not message.payload:
        raise NoResponders(f"nobody answers on {subject}")
    return message


def checked(subject: str, payload: bytes) -> dict[str, Any]:
    """The answer of JetStream's API in a payload. Raises ApiError, WireError."""
    try:
        answer = json.loads(payload)
    except ValueError as wrong:
        raise WireError(f"{subject} answered what is not JSON") from wrong
    if not isinstance(answer, dict):
        raise WireError(f"{subject} answered what is no object")
    error = answer.get("error")
    if isinstance(error, dict):
        code, err_code = int(error.get("code", 500)), int(error.get("err_code", 0))
        raise ApiError(code, err_code, str(error.get("description", error)))
    return answer
