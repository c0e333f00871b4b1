"""Publishing to a stream: many messages under way, each acknowledged by the stream."""

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from headwater.security.subjects import matches
from headwater.spark.errors import ApiError, ConnectError, ControlLineError, PublishError
from headwater.spark.options import SourceOptions
from headwater.spark.read.stream_names import STREAM_NOT_FOUND
from headwater.spark.wire.connection import Connection, header_block
from headwater.spark.wire.errors import WireError
from headwater.spark.wire.waits import Waits
from headwater.spark.wire.wire_reader import Frame

#: Most messages, and bytes of messages, that are published and not yet acknowledged.
MAX_PENDING = 1024
MAX_PENDING_BYTES = 8 << 20
#: What to do about what a stream answers, by JetStream's number.
ADVICE = {
    10054: ": raise the stream's max_msg_size, or write less per row",
    10060: ": another stream takes that subject. Check the option 'stream', and its subjects",
    10077: ": the stream is full and has discard new. Raise its limits, or remove messages",
    10109: ": create another stream, as a sealed one cannot be opened",
    10166: ": set allow_msg_ttl of the stream, or leave out the header Nats-TTL",
}
#: The header with a message's id.
ID_HEADER = "Nats-Msg-Id"
#: Bytes gathered before they are written to the socket.
WRITE_SIZE = 64 << 10


#: Those of some ids that are in the stream behind a sequence; and up to where it acknowledged.
Stored = Callable[[int, set[str], int], set[str]]


@dataclass(frozen=True)
class _Pending:
    """A message that is not acknowledged. If it is stored, then behind the sequence `floor`."""

    subject: str
    frame: bytes
    id: str | None
    floor: int


class Publisher:
    """Publishes to one stream, in order. `published` and `duplicates` count acknowledgements,
    `last` is the highest sequence that one named.

    Messages that were not acknowledged when a connection broke are published again: with an
    id they are still stored once, as long as the stream remembers ids. With `stored` that holds
    however long the server was away: it is asked first which of them are in the stream, all of
    them behind `last`, its last sequence when we began. `check` returns if we may send. Raises
    PublishError for a message that the stream refuses, and ConnectError after `retryTimeout`
    seconds without an acknowledgement.
    """

    def __init__(
        self,
        options: SourceOptions,
        stored: Stored | None = None,
        last: int = 0,
        check: Callable[[], None] | None = None,
    ) -> None:
        self._options = options
        self._check = check
        self._stored = stored
        self.last = last
        self._connected_before = False
        self._stream = options.streams[0]
        self._connection: Connection | None = None
        self._pending: OrderedDict[str, _Pending] = OrderedDict()
        self._bytes = 0
        self._out = bytearray()
        self._count = 0
        self.published = 0
        self.duplicates = 0

    def __enter__(self) -> "Publisher":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._connection is not None:
            self._connection.close()

    def publish(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> None:
        """Publish one message; waits while too many are under way."""
        # A copied message may have this header from its own stream: only our target counts.
        body = header_block({**headers, "Nats-Expected-Stream": self._stream})
        frame = b"%d %d\r\n%b%b\r\n" % (len(body), len(body) + len(payload), body, payload)
        check_subject(subject)
        self._count += 1
        # Requests on the same connection number their answers, too: `_check_subjects` makes one.
        token = f"m{self._count}"
        self._pending[token] = _Pending(subject, frame, headers.get(ID_HEADER), self.last)
        self._bytes += len(frame)
        if self._connection is not None:
            try:
                self._write(self._connection, token)
            except (ConnectError, WireError):
                self._drop()
        while len(self._pending) >= MAX_PENDING or self._bytes >= MAX_PENDING_BYTES:
            self._turn()

    def flush(self) -> None:
        """Wait until all messages are acknowledged."""
        while self._pending:
            self._turn()

    def _write(self, connection: Connection, token: str) -> None:
        subject, frame = self._pending[token].subject, self._pending[token].frame
        room = int(connection.info.get("max_payload", 1 << 20))
        if len(frame) > room + 256 and len(frame) - frame.index(b"\n") - 3 > room:
            raise PublishError(
                f"the message for {subject} is larger than the server takes ({room} bytes with "
                "its headers): raise max_payload, or write less per row"
            )
        self._out += b"HPUB %b %b.%b " % (
            subject.encode(),
            connection.inbox.encode(),
            token.encode(),
        )
        self._out += frame
        if len(self._out) >= WRITE_SIZE:
            self._send(connection)

    def _send(self, connection: Connection) -> None:
        out, self._out = self._out, bytearray()
        if out:
            if self._check is not None:
                self._check()
            connection.send(bytes(out))

    def _turn(self) -> None:
        """Take one answer; over a new connection when the old one breaks."""
        waits = Waits(self._options.retry_timeout)
        while True:
            try:
                connection = self._connected()
                if self._pending:
                    self._send(connection)
                    self._receive_ack(connection)
                return
            except ControlLineError as error:
                longest = max((each.subject for each in self._pending.values()), key=len)
                raise PublishError(
                    f"the server refused a line as long as that for {longest[:60]}…, a subject of "
                    f"{len(longest.encode())} bytes: shorten subjects, or raise max_control_line"
                ) from error
            except (ConnectError, WireError):
                self._drop()
                if waits.over():
                    raise
            waits.wait()

    def _drop(self) -> None:
        """Give the connection up: the next turn makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> Connection:
        """The connection; a new one publishes again what is not acknowledged."""
        if self._connection is None:
            self._out = bytearray()
            connection = Connection(self._options.endpoint)
            if self._connected_before:
                try:
                    self._leave_out_stored()
                except BaseException:
                    connection.close()
                    raise
            self._connected_before = True
            self._connection = connection
            for token in self._pending:
                self._write(self._connection, token)
        return self._connection

    def _leave_out_stored(self) -> None:
        """Count what is in the stream as published, though nobody has told us so."""
        named = {token: each for token, each in self._pending.items() if each.id}
        if self._stored is None or not named:
            return
        floor = min(each.floor for each in named.values())
        found = self._stored(floor, {each.id for each in named.values() if each.id}, self.last)
        counted: set[str | None] = set()
        for token, each in named.items():
            if each.id in found:
                del self._pending[token]
                self._bytes -= len(each.frame)
                self.published += each.id not in counted
                self.duplicates += each.id in counted
                counted.add(each.id)

    def _receive_ack(self, connection: Connection) -> None:
        deadline = time.monotonic() + self._options.endpoint.request_timeout
        while True:
            frame = connection.next_frame(deadline)
            if not connection.control(frame):
                break
        token = frame.subject.rpartition(".")[2]
        if token not in self._pending:
            return
        subject = self._pending[token].subject
        if frame.headers.startswith(b"NATS/1.0 503"):
            self._check_subjects(connection, subject)
        answer = self._answer(frame, subject)
        self._bytes -= len(self._pending.pop(token).frame)
        self.last = max(self.last, int(answer.get("seq", 0)))
        if answer.get("duplicate"):
            self.duplicates += 1
        else:
            self.published += 1

    def _check_subjects(self, connection: Connection, subject: str) -> None:
        """Nobody takes the subject. Raises PublishError if the stream was never there, or is there
        and does not want it: to wait would not help."""
        try:
            info = connection.api(f"{self._options.api_prefix}.STREAM.INFO.{self._stream}")
        except ApiError as error:
            # One that has acknowledged may be on its way to another node.
            if error.err_code == STREAM_NOT_FOUND and not self.published + self.duplicates:
                bucket = self._options.bucket
                what = f"bucket {bucket!r}, stream" if bucket else "stream"
                raise PublishError(
                    f"{what} {self._stream!r} does not exist, and no other one takes messages of "
                    f"{subject}: create it, or check the name, domain and account"
                ) from error
            return
        patterns: list[str] = info["config"].get("subjects") or []
        tokens = subject.split(".")
        if not any(matches(pattern.split("."), tokens) for pattern in patterns):
            wanted = ", ".join(patterns) or "none, as that of a mirror"
            raise PublishError(
                f"no stream takes messages of {subject}: the subjects of {self._stream!r} are "
                f"{wanted}"
            )

    def _answer(self, frame: Frame, subject: str) -> dict[str, Any]:
        """The acknowledgement. Raises ConnectError when a stream is only away for now."""
        if frame.headers.startswith(b"NATS/1.0 503"):
            raise ConnectError(
                f"no stream takes messages of {subject}: see whether {self._stream!r} was deleted"
            )
        answer: dict[str, Any] = json.loads(frame.payload)
        problem = answer.get("error")
        if problem:
            text = f"stream {self._stream!r} refused a message of {subject}: "
            text += f"{problem.get('description')} ({problem.get('err_code')})"
            text += ADVICE.get(problem.get("err_code"), "")
            if problem.get("code") == 503:
                raise ConnectError(text)
            raise PublishError(text)
        return answer


def lost_acknowledged(options: SourceOptions, last: int, acknowledged: int) -> PublishError:
    """The error for a stream that ends at `last`, below what it has `acknowledged`."""
    return PublishError(
        f"stream {options.streams[0]!r} ends at sequence {last}, but has acknowledged "
        f"{acknowledged}: its server lost its newest messages as it ended. Start the query again: "
        "it writes what is missing of this batch"
    )


def check_subject(subject: str) -> None:
    """Raises PublishError for what is no subject to publish to."""
    tokens = subject.split(".")
    if "" in tokens or min(subject) <= " " or "\x7f" in subject or {"*", ">"} & set(tokens):
        raise PublishError(
            f"{subject[:200]!r} is no subject: tokens without blanks and control characters, with "
            "dots between"
        )

