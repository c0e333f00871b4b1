"""`spark.readStream.format("headwater")`: offsets and microbatches of streaming queries.

An offset is, per stream, its incarnation and the last sequence that was read:
{"version": 1, "streams": {"PLANT": {"incarnation": "2026-…Z", "sequence": 41}}}. Spark keeps
it in the checkpoint, so a query goes on where it was, on any driver.
"""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headwater.spark.errors import ApiError, ConnectError, OptionError, UnknownStreamError
from headwater.spark.options import SourceOptions
from headwater.spark.read.layout import Layout
from headwater.spark.read.partition import RangePartition, read_partition
from headwater.spark.read.planning import (
    check_retention,
    plan_between,
    recreated,
    sequence_at,
    stream_info,
)
from headwater.spark.wire.connection import Connection
from headwater.spark.wire.errors import WireError

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1
#: Seconds between two looks at a stream that has no news. Spark looks every 10 ms by itself.
POLL_SECONDS = 0.05
#: Seconds before the second try to reach a server; doubles up to the largest wait.
FIRST_BACKOFF = 0.1
MAX_BACKOFF = 2.0

_T = TypeVar("_T")


class HeadwaterStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans microbatches on the driver, where it keeps one connection, and reads in tasks."""

    def __init__(self, options: SourceOptions, layout: Layout) -> None:
        self._options = options
        self._layout = layout
        self._connection: Connection | None = None
        self._frozen: dict[str, int] | None = None
        self._polled = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_connection": None}

    def initialOffset(self) -> dict[str, Any]:
        """Before the first sequence to read. `earliest` marks what may expire meanwhile."""
        streams = {}
        for stream, info in self._infos().items():
            check_retention(info["config"])
            first = self._first(stream, info)
            streams[stream] = {"incarnation": info["created"], "sequence": first - 1}
            if not self._options.starting:
                streams[stream]["earliest"] = True
        return {"version": VERSION, "streams": streams}

    def _first(self, stream: str, info: dict[str, Any]) -> int:
        options, moment = self._options, self._options.starting_time
        if moment is not None:
            return self._retried(
                lambda connection: sequence_at(connection, options, stream, moment)
            )
        return options.starting or max(1, int(info["state"]["first_seq"]))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next microbatch: what `limit` and the options admit behind `start`."""
        known = self._known(start)
        left = _Admission(self._options, limit, len(known))
        ends: dict[str, Any] = {}
        for stream, info in self._news(known).items():
            position, state = known[stream], info["state"]
            made_anew = info["created"] != position["incarnation"]
            if made_anew or state["last_seq"] < position["sequence"]:
                raise recreated(stream)
            end = (self._frozen or {}).get(stream, state["last_seq"])
            # What is gone below the first sequence is no part of the limit.
            begin = max(position["sequence"], min(state["first_seq"] - 1, end))
            end = left.admit(state, begin, end)
            ends[stream] = position
            if end > position["sequence"]:
                ends[stream] = {"incarnation": position["incarnation"], "sequence": end}
        return {"version": VERSION, "streams": ends}

    def getDefaultReadLimit(self) -> ReadLimit:
        """What `maxMsgsPerTrigger` says, or `maxBytesPerTrigger`. Spark takes one of them; the
        other one is met as well."""
        rows, size = self._options.max_per_trigger, self._options.max_bytes_per_trigger
        if rows is not None:
            return ReadMaxRows(rows)
        return ReadAllAvailable() if size is None else ReadMaxBytes(size)

    def reportLatestOffset(self) -> dict[str, Any]:
        """Where the streams end, for the progress of the query: the difference is the backlog."""
        streams = {
            stream: {"incarnation": info["created"], "sequence": info["state"]["last_seq"]}
            for stream, info in self._infos().items()
        }
        return {"version": VERSION, "streams": streams}

    def prepareForTriggerAvailableNow(self) -> None:
        """This run ends with what is there now."""
        infos = self._infos()
        self._frozen = {stream: info["state"]["last_seq"] for stream, info in infos.items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges between two offsets. Raises LostRangeError, StreamRecreatedError."""
        before, after = self._known(start), self._known(end)
        return [
            part
            for stream, position in before.items()
            if after[stream]["sequence"] > position["sequence"]
            for part in self._plan(stream, position, after[stream]["sequence"])
        ]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_partition(self._options, self._layout, partition)

    def stop(self) -> None:
        """The query ended."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _plan(self, stream: str, position: dict[str, Any], end: int) -> list[InputPartition]:
        options = self._options
        if position.get("earliest") and options.allow_expired is None:
            options = replace(options, allow_expired=True)
        incarnation, first = position["incarnation"], position["sequence"] + 1
        ranges = self._retried(
            lambda connection: plan_between(connection, options, stream, incarnation, first, end)
        )
        return [RangePartition(work) for work in ranges]

    def _known(self, offset: dict[str, Any]) -> dict[str, Any]:
        """The positions in an offset. Raises OptionError when they are of other streams."""
        streams: dict[str, Any] = offset.get("streams", {})
        if offset.get("version") != VERSION or set(streams) != set(self._options.streams):
            raise OptionError(
                f"the checkpoint is of a query over {', '.join(sorted(streams)) or 'other data'}, "
                f"not {', '.join(self._options.streams)}: use a new checkpoint for other streams"
            )
        return streams

    def _news(self, known: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """What the streams say; without news not more often than every `POLL_SECONDS`."""
        infos = self._infos()
        if all(infos[name]["state"]["last_seq"] <= known[name]["sequence"] for name in known):
            wait = self._polled + POLL_SECONDS - time.monotonic()
            if wait > 0:
                time.sleep(wait)
                infos = self._infos()
        self._polled = time.monotonic()
        return infos

    def _infos(self) -> dict[str, dict[str, Any]]:
        return self._retried(
            lambda connection: {
                stream: stream_info(connection, self._options, stream)
                for stream in self._options.streams
            }
        )

    def _retried(self, ask: Callable[[Connection], _T]) -> _T:
        """Ask over the kept connection; a server may be away for `retryTimeout` seconds."""
        deadline = time.monotonic() + self._options.retry_timeout
        wait = FIRST_BACKOFF
        while True:
            try:
                if self._connection is None:
                    self._connection = Connection(self._options.endpoint)
                return ask(self._connection)
            except (ConnectError, WireError, UnknownStreamError) as error:
                cause = error.__cause__
                gone = isinstance(cause, ApiError) and cause.code == 404
                if gone or time.monotonic() + wait > deadline:
                    raise
            self.stop()
            time.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(MAX_BACKOFF, 2 * wait)


class _Admission:
    """What is left of a microbatch's limits while `streams` streams take their shares in turn.

    Spark lifts all limits for a trigger that takes everything at once.
    """

    def __init__(self, options: SourceOptions, limit: ReadLimit, streams: int) -> None:
        self._streams = streams
        self._rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        bounded = isinstance(limit, (ReadMaxRows, ReadMaxBytes))
        self._bytes = options.max_bytes_per_trigger if bounded else None

    def admit(self, state: dict[str, Any], begin: int, end: int) -> int:
        """The last sequence behind `begin` of the next stream, at most `end`."""
        mean = max(1, state["bytes"] // state["messages"]) if state["messages"] else 1
        if self._rows is not None:
            end = min(end, begin + -(-self._rows // self._streams))
        if self._bytes is not None:
            end = min(end, begin + max(1, self._bytes // self._streams // mean))
        taken = max(0, end - begin)
        if self._rows is not None:
            self._rows -= taken
        if self._bytes is not None:
            self._bytes = max(0, self._bytes - taken * mean)
        self._streams -= 1
        return end
