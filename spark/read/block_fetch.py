"""The rows of a range in blocks: Headwater answers `BLOCK.GET` with columns of many messages."""

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

from headwater.spark.errors import ConnectError, InterruptedRead, UnsupportedStreamError
from headwater.spark.options import SourceOptions
from headwater.spark.read.blocks import Wanted, block_request, read_block
from headwater.spark.read.consumer_fetch import check_end
from headwater.spark.read.planning import SequenceRange
from headwater.spark.wire.connection import Connection
from headwater.spark.wire.kept_connection import kept_connection
from headwater.spark.wire.wire_reader import Columns, Frame, WireReader

#: Bytes asked for at once; so much is on the way while Spark is busy.
ANSWER_BYTES = 4 << 20
#: Seconds without a byte after which the server counts as gone.
SILENCE = 10.0
#: Seconds without a byte after which we ask whether somebody still reads for us.
DOUBT = 1.0


class BlockFetch:
    """Reads one range; `wanted` decides which columns are kept.

    `done` is True when the end of the range was reached.
    """

    def __init__(self, options: SourceOptions, work: SequenceRange, wanted: Wanted) -> None:
        self._options = options
        self._work = work
        self._wanted = wanted
        self._maps = WireReader(headers=wanted.headers)
        self.last_sequence = work.start - 1
        self.done = False

    #: Rows that were read and not yet given out: a block goes out as it is.
    rows = 0

    def connect(self) -> AbstractContextManager[Connection]:
        """A connection for `read`; after a small range it is kept for the next one."""
        endpoint = self._options.endpoint
        return kept_connection(endpoint) if self._work.small else Connection(endpoint)

    def read(self, connection: Connection) -> Iterator[Columns]:
        """Yield the blocks after `last_sequence`; the next answer is asked for before the last
        block of an answer is given out. Raises InterruptedRead."""
        reply = self._ask(connection, self.last_sequence + 1)
        while not self.done:
            frame = self._answer(connection, reply)
            columns, following, last = read_block(frame.payload, self._wanted, self._maps)
            if following <= self.last_sequence or (columns.rows == 0 and not last):
                raise InterruptedRead("a block does not go on where the one before ended")
            moved = following > self.last_sequence + 1
            if last and following > self._work.end:
                self.done = True
            elif last and not moved:
                check_end(connection, self._options, self._work, following)
                self.done = True
            elif last:
                reply = self._ask(connection, following)
            self.last_sequence = following - 1
            if columns.rows:
                yield columns

    def _ask(self, connection: Connection, start: int) -> str:
        """Send a request; the subject on which its answer comes."""
        options, work = self._options, self._work
        subject, body = block_request(options, work.stream, start, work.end)
        body["columns"] = self._wanted.names
        body["max_bytes"] = ANSWER_BYTES
        body["block_bytes"] = min(
            options.batch_bytes, int(connection.info.get("max_payload", 1 << 20))
        )
        reply = connection.new_reply()
        connection.publish(subject, json.dumps(body).encode(), reply)
        return reply

    def _answer(self, connection: Connection, reply: str) -> Frame:
        """The next block. Raises InterruptedRead for a refusal, and ConnectError.

        The node that reads may be another one than that of the connection. When that one has
        ended, the stream's INFO comes from its next leader, twice, and no block before it.
        """
        began = time.monotonic()
        info = f"{self._options.api_prefix}.STREAM.INFO.{self._work.stream}"
        marks = [f"{reply}{name}" for name in ("i", "j")]
        doubting = False
        while True:
            try:
                frame = connection.next_frame(began + (SILENCE if doubting else DOUBT))
            except ConnectError:
                if doubting or time.monotonic() < began + DOUBT:
                    raise
                doubting = True
                connection.publish(info, b"", marks[0])
                continue
            if connection.control(frame):
                continue
            if frame.subject == marks[0]:
                connection.publish(info, b"", marks[1])
            elif frame.subject == marks[1]:
                raise InterruptedRead("nobody reads on: the node that did has ended")
            if frame.subject != reply:
                continue
            if frame.headers:
                text = frame.headers[9:].partition(b"\r\n")[0].decode("utf-8", "replace")
                if text.startswith("400"):
                    raise UnsupportedStreamError(f"the server refused a block read: {text}")
                raise InterruptedRead(f"a block read ended: {text}")
            return frame
