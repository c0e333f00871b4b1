"""Read one sequence range: pull, parse, hand out batches, survive what can be survived.

Exactly the rows of the range come out, once and in order. A broken connection, a lost
consumer or a missed delivery is followed by a new consumer after the last row. Planned rows
that the stream no longer holds are counted as expired or lost, and end the read in an error
unless the options allow them to miss.
"""

import contextlib
import random
import time
from collections.abc import Iterator
from typing import Any

from headwater.spark.account import Missing, ReadPosition, ReadPositions, classify
from headwater.spark.connection import Connection
from headwater.spark.errors import (
    ApiError,
    ConnectError,
    InterruptedRead,
    LostRangeError,
    UnknownStreamError,
)
from headwater.spark.options import SourceOptions
from headwater.spark.planning import (
    SequenceRange,
    create_consumer,
    next_message,
    pull_body,
    recreated,
    stream_info,
)
from headwater.spark.wire_reader import (
    DISORDER,
    DRAINED,
    END,
    FRAME,
    FULL,
    MAX_MESSAGE,
    NEED,
    Columns,
    Frame,
    WireError,
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
#: Seconds before the second try; doubles up to the largest wait, with jitter.
FIRST_BACKOFF = 0.1
MAX_BACKOFF = 2.0

_TRANSIENT = (ConnectError, InterruptedRead, WireError)


class RangeReader:
    """Iterates the batches of one range. `wire` decides which columns are kept.

    `delivered` is the number of rows so far; `missing` is what did not come of the planned
    ones, None until the range is done.
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
        self._done = False
        self._positions = ReadPositions()
        self.delivered = 0
        self.missing: Missing | None = None

    def batches(self) -> Iterator[Columns]:
        """Yield the rows in order. Raises LostRangeError, StreamRecreatedError, ConnectError
        after `retry_timeout` seconds without progress, and AuthError at once."""
        failures, since = 0, 0.0
        progress = self._wire.last_sequence
        while self.missing is None:
            try:
                with Connection(self._options.endpoint, self._wire) as connection:
                    self._check_front(self._stream_info(connection))
                    if not self._done:
                        for columns in self._consume(connection):
                            self._mark(columns)
                            yield columns
                    self.missing = self._classify(self._stream_info(connection))
            except _TRANSIENT as error:
                if failures == 0 or self._wire.last_sequence > progress:
                    failures, since = 0, time.monotonic()
                failures += 1
                progress = self._wire.last_sequence
                wait = min(MAX_BACKOFF, FIRST_BACKOFF * 2**failures) * random.uniform(0.5, 1.0)
                self._give_up_after(time.monotonic() - since + wait, failures, error)
                time.sleep(wait)

    def _give_up_after(self, seconds: float, failures: int, error: Exception) -> None:
        limit = self._options.retry_timeout
        if seconds > limit:
            raise ConnectError(
                f"reading {self._work.stream} after sequence {self._wire.last_sequence} failed "
                f"{failures} times in {limit:g} s (retryTimeout); the last time: {error}"
            ) from error

    def _mark(self, columns: Columns) -> None:
        """Count the rows of a batch, and remember where it ended."""
        self.delivered += columns.rows
        sequence, _ = columns.sequence
        micros, _ = columns.timestamp
        at = 8 * (columns.rows - 1)
        self._positions.add(
            ReadPosition(
                int.from_bytes(sequence[at : at + 8], "little"),
                self.delivered,
                int.from_bytes(micros[at : at + 8], "little", signed=True),
            )
        )

    def _consume(self, connection: Connection) -> Iterator[Columns]:
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
            self._done = True
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
        following = next_message(connection, self._options, self._work.stream, after)
        self._done = following is None or following > self._work.end
        if not self._done:
            raise InterruptedRead(f"the consumer stopped before sequence {following}")

    def _stream_info(self, connection: Connection) -> dict[str, Any]:
        """What the stream says of itself. Raises StreamRecreatedError for another incarnation."""
        work = self._work
        try:
            info = stream_info(connection, self._options, work.stream)
        except UnknownStreamError as error:
            if isinstance(error.__cause__, ApiError) and error.__cause__.code == 404:
                raise
            raise InterruptedRead(str(error)) from error
        if info["created"] != work.incarnation:
            raise recreated(work.stream)
        return info

    def _check_front(self, info: dict[str, Any]) -> None:
        """Before reading: rows that are surely gone must not cost the read of the others."""
        work = self._work
        start = self._wire.last_sequence + 1
        if info["state"]["first_seq"] > start:
            readable = max(0, work.end + 1 - max(start, info["state"]["first_seq"]))
            self._judge(info, work.planned - self._rows() - readable)

    def _classify(self, info: dict[str, Any]) -> Missing:
        """After reading: rows delivered against rows planned."""
        return self._judge(info, self._work.planned - self._rows())

    def _rows(self) -> int:
        """Rows so far, with those of the batch that is being filled."""
        return self.delivered + int(self._wire.rows)

    def _judge(self, info: dict[str, Any], absent: int) -> Missing:
        """Divide `absent` rows into expired and lost. Raises LostRangeError unless allowed."""
        missing = classify(self._work, absent, self._positions, info)
        options = self._options
        if not options.fail_on_data_loss:
            return missing
        where = self._where(info["state"]["first_seq"])
        if missing.lost:
            raise LostRangeError(
                f"{where}: {missing.lost} planned rows were lost to a purge or to deletes, not "
                "to the stream's limits, after the read was planned. Load again to read what is "
                "left, or set failOnDataLoss=false (--allow-loss)"
            )
        if missing.expired and not self._work.may_expire:
            raise LostRangeError(
                f"{where}: {missing.expired} planned rows expired by its limits after the read "
                "was planned. Set allowExpired=true (--allow-expired) to read what is left"
            )
        return missing

    def _where(self, first: int) -> str:
        """Which sequences are concerned: those below the stream's first, if there are any."""
        work = self._work
        position = self._positions.below(first)
        start, end = (
            work.start if position is None else position.sequence + 1,
            min(first - 1, work.end),
        )
        if end < start:
            start, end = work.start, work.end
        return f"stream {work.stream!r} no longer holds all of the sequences {start} to {end}"
