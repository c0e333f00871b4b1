"""The rows of a range over a pull consumer: what every JetStream server offers.

Exactly the rows after `last_sequence` come, in order. The consumer is an ephemeral one without
acks; a reader that loses it opens another after its last row.
"""

import contextlib
from collections.abc import Iterator

from headwater.spark.errors import ApiError, ConnectError, InterruptedRead
from headwater.spark.options import SourceOptions
from headwater.spark.read.planning import (
    SequenceRange,
    create_consumer,
    next_message,
    pull_body,
)
from headwater.spark.wire.connection import Connection
from headwater.spark.wire.wire_reader import (
    DISORDER,
    DRAINED,
    END,
    FRAME,
    FULL,
    MAX_MESSAGE,
    NEED,
    Columns,
    Frame,
    WireReader,
)

#: Bytes asked for per pull. Two pulls are under way, so this and Arrow bound what is in flight.
PULL_BYTES = 4 << 20
#: Most messages asked for per pull.
PULL_MESSAGES = 16_384
#: Seconds a pull waits for messages, and seconds between signs of life.
PULL_EXPIRES = 30.0
HEARTBEAT = 3.0
#: Seconds without a byte after which the consumer counts as gone.
SILENCE = 10.0
#: Seconds an unused consumer lives. Spark may not ask for rows for long while it is busy.
CONSUMER_IDLE = 60


class ConsumerFetch:
    """Reads one range; `wire` decides which columns are kept.

    `done` is True when the end of the range was reached.
    """

    def __init__(
        self,
        options: SourceOptions,
        work: SequenceRange,
        wire: WireReader,
        headers_only: bool = False,
    ) -> None:
        self._options = options
        self._work = work
        self._wire = wire
        self._headers_only = headers_only
        self._pull_bytes = PULL_BYTES
        self._batch = min(PULL_MESSAGES, max(16, PULL_BYTES // max(1, work.mean_bytes)))
        self._outstanding = 0
        self._stuck_at = -1
        self.done = False

    @property
    def last_sequence(self) -> int:
        """The last sequence that was read; what is before was read, too."""
        return int(self._wire.last_sequence)

    @property
    def rows(self) -> int:
        """Rows that were read and not yet given out."""
        return int(self._wire.rows)

    def connect(self) -> Connection:
        """A connection whose rows come here."""
        return Connection(self._options.endpoint, self._wire)

    def read(self, connection: Connection) -> Iterator[Columns]:
        """One consumer's life: until the range is done, or the next consumer must go on."""
        wire = self._wire
        start = wire.last_sequence + 1
        name, pending = self._create(connection, start)
        if pending == 0:
            self._finish_or_go_on(connection)
            return
        inbox = f"{connection.inbox}d"
        sid = connection.subscribe(f"{inbox}.*")
        wire.expect(sid)
        pull_subject = f"{self._options.api_prefix}.CONSUMER.MSG.NEXT.{self._work.stream}.{name}"
        self._outstanding = 0
        answer = NEED
        while answer not in (END, DRAINED):
            self._top_up(connection, pull_subject, inbox)
            received = wire.received
            answer = wire.advance()
            self._outstanding -= wire.received - received
            if answer == NEED:
                connection.receive(SILENCE)
            elif answer == FULL:
                yield wire.drain()
            elif answer == FRAME and self._is_idle(connection, wire.frame):
                answer = DRAINED
            elif answer == DISORDER:
                raise InterruptedRead("a delivery is missing")
        wire.expect(0)
        connection.unsubscribe(sid)
        if wire.rows:
            yield wire.drain()
        if answer == END:
            self.done = True
        else:
            self._finish_or_go_on(connection)
        with contextlib.suppress(ApiError, ConnectError):
            api = self._options.api_prefix
            connection.api(f"{api}.CONSUMER.DELETE.{self._work.stream}.{name}")

    def _create(self, connection: Connection, start: int) -> tuple[str, int]:
        try:
            return create_consumer(
                connection,
                self._options,
                self._work.stream,
                start,
                CONSUMER_IDLE,
                self._headers_only,
            )
        except ApiError as error:
            if error.code in (503, 500):
                raise InterruptedRead(f"no consumer could be made: {error}") from error
            raise

    def _top_up(self, connection: Connection, subject: str, inbox: str) -> None:
        """Ask for more while less than one pull is under way, and the range may need it."""
        left = self._work.end - self._wire.last_sequence
        while self._outstanding < min(self._batch, left):
            size = min(self._batch, left - max(self._outstanding, 0))
            body = pull_body(size, self._pull_bytes, PULL_EXPIRES, HEARTBEAT)
            connection.publish(subject, body, f"{inbox}.p")
            self._outstanding += size

    def _is_idle(self, connection: Connection, frame: Frame) -> bool:
        """Serve a control frame; True when the consumer has nothing to send for now."""
        if connection.control(frame) or not frame.headers.startswith(b"NATS/1.0 "):
            return False
        status = frame.headers[9:12]
        line = frame.headers.partition(b"\r\n")[0].lower()
        if status == b"100":
            return b"idle heartbeat" in line
        if status == b"409" and b"exceeds maxbytes" in line:
            self._outstanding -= self._returned(frame)
            self._widen()
            return False
        if status == b"409" and b"batch completed" in line:
            return False
        if status in (b"404", b"408"):
            return True
        text = line[9:].decode("utf-8", "replace")
        raise InterruptedRead(f"the consumer ended: {text}")

    def _widen(self) -> None:
        """Ask for more bytes per pull when two pulls in a row brought nothing.

        A message larger than the whole budget would stop the read for ever otherwise.
        """
        if self._wire.received == self._stuck_at:
            if self._pull_bytes > 2 * MAX_MESSAGE:
                raise InterruptedRead("a pull for the largest message brings nothing")
            self._pull_bytes *= 2
        self._stuck_at = self._wire.received

    @staticmethod
    def _returned(frame: Frame) -> int:
        """How many messages of a pull will not come any more."""
        for line in frame.headers.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"nats-pending-messages" and value.strip().isdigit():
                return int(value)
        return 0

    def _finish_or_go_on(self, connection: Connection) -> None:
        """A consumer that says "nothing pending" is believed only if the stream agrees."""
        after = self._wire.last_sequence + 1
        check_end(connection, self._options, self._work, after)
        self.done = True


def check_end(
    connection: Connection, options: SourceOptions, work: SequenceRange, after: int
) -> None:
    """Raises InterruptedRead when the stream has rows of the range from `after` on."""
    following = next_message(connection, options, work.stream, after)
    if following is not None and following <= work.end:
        raise InterruptedRead(f"the read stopped before sequence {following}")
