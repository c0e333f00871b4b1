"""Read one sequence range: hand out batches, survive what can be survived, count what is missing.

Exactly the rows of the range come out, once and in order. A broken connection or a missed
delivery is followed by a new connection after the last row. Planned rows that the stream no
longer holds are counted as expired or lost, and end the read in an error unless the options
allow them to miss. What a stream no longer had when a microbatch was planned is judged in the
same way.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

from headwater.spark.errors import (
    ConnectError,
    InterruptedRead,
    LostRangeError,
    StreamRecreatedError,
    UnknownStreamError,
)
from headwater.spark.options import SourceOptions
from headwater.spark.read.account import Missing, ReadPosition, ReadPositions, classify
from headwater.spark.read.planning import SequenceRange, recreated
from headwater.spark.read.stream_names import is_gone, stream_info
from headwater.spark.wire.connection import Connection
from headwater.spark.wire.errors import WireError
from headwater.spark.wire.waits import wait_s
from headwater.spark.wire.wire_reader import Columns

_log = logging.getLogger(__name__)

_TRANSIENT = (ConnectError, InterruptedRead, WireError)


class Fetch(Protocol):
    """Where rows come from: a consumer, or blocks."""

    done: bool
    """Whether the end of the range was reached."""

    @property
    def last_sequence(self) -> int:
        """The last sequence that was read; what is before was read, too."""

    @property
    def rows(self) -> int:
        """Rows that were read and not yet given out."""

    def connect(self) -> AbstractContextManager[Connection]:
        """A connection for `read`."""

    def read(self, connection: Connection) -> Iterator[Columns]:
        """Yield what follows `last_sequence`, until `done`. Raises InterruptedRead and others
        after which the next connection goes on."""


class RangeReader:
    """Iterates the batches of one range, which come from `fetch`.

    `delivered` is the number of rows so far; `missing` is what did not come of the planned
    ones, None until the range is done.
    """

    def __init__(self, options: SourceOptions, work: SequenceRange, fetch: Fetch) -> None:
        self._options = options
        self._work = work
        self._fetch = fetch
        self._positions = ReadPositions()
        # What is small is read as soon as asked about, and is judged afterwards alone. A query that
        # goes on with a stream that was made anew must know before whose rows these are.
        self._quick = work.blocks and work.small and not options.restart_recreated
        self.delivered = 0
        self.missing: Missing | None = None

    def batches(self) -> Iterator[Columns]:
        """Yield the rows in order; of a stream that is gone, all others are lost, and all of one
        that was made anew before the first row came, where the query goes on with the new one.

        Raises LostRangeError, UnknownStreamError, StreamRecreatedError, ConnectError after
        `retry_timeout` seconds without progress, and AuthError at once.
        """
        failures, since = 0, 0.0
        progress = self._fetch.last_sequence
        while self.missing is None:
            try:
                with self._fetch.connect() as connection:
                    if failures or not self._quick:
                        self._check_front(self._stream_info(connection))
                    if not self._fetch.done:
                        for columns in self._fetch.read(connection):
                            self._mark(columns)
                            yield columns
                    self.missing = self._classify(self._stream_info(connection))
            except _TRANSIENT as error:
                if failures == 0 or self._fetch.last_sequence > progress:
                    failures, since = 0, time.monotonic()
                failures += 1
                progress = self._fetch.last_sequence
                wait = wait_s(failures)
                self._give_up_after(time.monotonic() - since + wait, failures, error)
                time.sleep(wait)
            except UnknownStreamError:
                if self._options.fail_on_data_loss:
                    raise
                self.missing = Missing(0, max(0, self._work.planned - self.delivered))
            except StreamRecreatedError:
                # Rows that came may be those of the new stream: another attempt comes here first.
                if not self._options.restart_recreated or self._rows():
                    raise
                _log.warning(
                    "stream %s was created again: sequences %d to %d of the old one are lost",
                    self._work.stream, self._work.start, self._work.end,
                )  # fmt: skip
                self.missing = Missing(0, self._work.planned)

    def _give_up_after(self, seconds: float, failures: int, error: Exception) -> None:
        limit = self._options.retry_timeout
        if seconds > limit:
            raise ConnectError(
                f"reading {self._work.stream} after sequence {self._fetch.last_sequence} failed "
                f"{failures} times in {limit:g} s (retryTimeout); the last time: {error}"
            ) from error

    def _mark(self, columns: Columns) -> None:
        """Count the rows of a batch, and remember where it ended."""
        self.delivered += columns.rows
        sequence, _ = columns.sequence
        times, _ = columns.timestamp
        at = 8 * (columns.rows - 1)
        self._positions.add(
            ReadPosition(
                int.from_bytes(sequence[at : at + 8], "little"),
                self.delivered,
                int.from_bytes(times[at : at + 8], "little", signed=True) // 1000,
            )
        )

    def _stream_info(self, connection: Connection) -> dict[str, Any]:
        """What the stream says of itself. Raises StreamRecreatedError for another incarnation."""
        work = self._work
        try:
            info = stream_info(connection, self._options, work.stream)
        except UnknownStreamError as error:
            if is_gone(error):
                raise
            raise InterruptedRead(str(error)) from error
        if info["created"] != work.incarnation:
            raise recreated(work.stream)
        return info

    def _check_front(self, info: dict[str, Any]) -> None:
        """Before reading: rows that are surely gone must not cost the read of the others."""
        work = self._work
        start = self._fetch.last_sequence + 1
        if info["state"]["first_seq"] > start:
            readable = max(0, work.end + 1 - max(start, info["state"]["first_seq"]))
            self._judge(info, work.planned - self._rows() - readable)

    def _classify(self, info: dict[str, Any]) -> Missing:
        """After reading: rows delivered against rows planned."""
        return self._judge(info, self._work.planned - self._rows())

    def _rows(self) -> int:
        """Rows so far, with those of the batch that is being filled."""
        return self.delivered + self._fetch.rows

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
        start = work.start if position is None else position.sequence + 1
        end = min(first - 1, work.end)
        if end < start:
            start, end = work.start, work.end
        return f"stream {work.stream!r} no longer holds all of the sequences {start} to {end}"


def with_gone(
    connection: Connection,
    options: SourceOptions,
    wanted: SequenceRange,
    ranges: Sequence[SequenceRange],
    promised: bool,
) -> list[SequenceRange]:
    """The planned `ranges` of the `wanted` one; the first carries what was gone `before` them.

    Streams with a limit per subject have holes by design: nothing is counted there. With filters
    nobody knows how many of the gone ones passed them: the log says what is gone, no more. Raises
    LostRangeError for losses, if the options forbid them and the sequences were `promised`.
    """
    if ranges and ranges[0].start <= wanted.start:
        return list(ranges)
    info = stream_info(connection, options, wanted.stream)
    gone = _gone_before(info, wanted, ranges)
    if gone is None:
        return list(ranges)
    missing = classify(gone, gone.planned, ReadPositions(), info)
    if promised and missing.lost and options.fail_on_data_loss:
        raise LostRangeError(
            f"stream {gone.stream!r} no longer holds the sequences {gone.start} to {gone.end}: "
            f"{missing.lost} of them were lost to a purge or to deletes, not to the stream's "
            "limits, before they were read. Set failOnDataLoss=false (--allow-loss) to go on "
            "behind them"
        )
    _warn(gone, missing, bool(options.filters))
    if options.filters:
        return list(ranges)
    if not ranges:
        return [replace(wanted, start=wanted.end + 1, before=tuple(missing))]
    return [replace(ranges[0], before=tuple(missing)), *ranges[1:]]


def _gone_before(
    info: dict[str, Any], wanted: SequenceRange, ranges: Sequence[SequenceRange]
) -> SequenceRange | None:
    """The sequences before the ranges that the stream once had."""
    config = info["config"]
    if info["created"] != wanted.incarnation or config.get("max_msgs_per_subject", -1) > 0:
        return None
    start = max(wanted.start, config.get("first_seq", 1))
    if start == 1 and (config.get("mirror") or config.get("sources")):
        # A copy begins where its origin does when it first asks.
        return None
    end = min(ranges[0].start if ranges else info["state"]["first_seq"], wanted.end + 1) - 1
    if end < start:
        return None
    return replace(wanted, start=start, end=end, planned=end - start + 1)


def _warn(gone: SequenceRange, missing: Missing, filtered: bool) -> None:
    _log.warning(
        "stream %s, sequences %d to %d were gone before the batch was planned: %d expired, %d "
        "were lost%s; the result is without them: keep messages longer than a query is away",
        *(gone.stream, gone.start, gone.end, missing.expired, missing.lost),
        ", of all subjects" if filtered else "",
    )
