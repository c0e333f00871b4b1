"""`spark.readStream.format("headwater")`: offsets and microbatches of streaming queries.

An offset is, per stream, its incarnation and the last sequence that was read:
{"version": 1, "streams": {"PLANT": {"incarnation": "2026-…Z", "sequence": 41}}}. Spark keeps
it in the checkpoint, so a query goes on where it was, on any driver. A stream that matches the
patterns of the options enters the offset with its first messages.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
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

from headwater.spark.errors import (
    ConnectError,
    OptionError,
    StreamRecreatedError,
    UnknownStreamError,
)
from headwater.spark.options import SourceOptions
from headwater.spark.read.admission import Admission, Backlog
from headwater.spark.read.layout import Layout
from headwater.spark.read.partition import packed, read_partition
from headwater.spark.read.planning import (
    SequenceRange,
    check_retention,
    plan_between,
    recreated,
    sequence_at,
)
from headwater.spark.read.range_reader import with_gone
from headwater.spark.read.stream_names import (
    is_gone,
    matches,
    stream_infos,
    stream_names,
    unknown_stream,
)
from headwater.spark.wire.connection import Connection
from headwater.spark.wire.errors import WireError
from headwater.spark.wire.waits import Waits

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1
#: Seconds between two looks at streams that have no news. Spark looks every 10 ms by itself.
POLL_SECONDS = 0.05
#: Looks at streams without news take at most one part in this many of the time.
POLL_SHARE = 5

_T = TypeVar("_T")
_Infos = dict[str, dict[str, Any]]
_log = logging.getLogger(__name__)


class HeadwaterStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans microbatches on the driver, where it keeps one connection, and reads in tasks."""

    def __init__(self, options: SourceOptions, layout: Layout) -> None:
        self._options = options
        self._layout = layout
        self._connection: Connection | None = None
        self._frozen: dict[str, int] | None = None
        self._admission = Admission()
        self._next_poll = 0.0
        self._gone: set[str] = set()
        self._last_trigger: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_connection": None}

    def initialOffset(self) -> dict[str, Any]:
        """Before the first sequence to read. `earliest` marks what may expire meanwhile.

        Of streams that patterns find, one without messages waits for its first one, as one that
        appears later: until then it may go without a loss.
        """
        streams = {}
        infos = self._infos()
        for stream in self._options.streams:
            if stream not in infos:
                raise unknown_stream(self._options, stream)
        for stream, info in infos.items():
            check_retention(info["config"])
            one = self._options.of(stream)
            earliest = not one.starting and not one.from_latest
            first = self._first(stream, info)
            if self._options.patterns and earliest and not info["state"]["last_seq"]:
                continue
            streams[stream] = {"incarnation": info["created"], "sequence": first - 1}
            if earliest:
                streams[stream]["earliest"] = True
        return {"version": VERSION, "streams": streams}

    def _first(self, stream: str, info: dict[str, Any]) -> int:
        options, moment = self._options.of(stream), self._options.starting_time
        if options.from_latest:
            return int(info["state"]["last_seq"]) + 1
        if moment is not None:
            return self._retried(
                lambda connection: sequence_at(connection, options, stream, moment)
            )
        return options.starting or max(1, int(info["state"]["first_seq"]))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next microbatch: what `limit` and the options admit behind `start`."""
        ends = dict(self._known(start))
        infos = self._news(ends)
        for stream, info in infos.items():
            ends[stream] = self._position(stream, ends.get(stream), info)
        backlogs = {stream: self._backlog(stream, ends[stream], infos[stream]) for stream in infos}
        if self._holds_back(sum(backlog.length for backlog in backlogs.values())):
            self._rest()
            return start
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        # Spark lifts all limits for a trigger that takes everything at once.
        bounded = isinstance(limit, (ReadMaxRows, ReadMaxBytes))
        size = self._options.max_bytes_per_trigger if bounded else None
        taken = self._admission.share(backlogs, rows, size)
        for stream, backlog in backlogs.items():
            place = ends[stream]
            end = backlog.begin + taken.get(stream, 0)
            waits = backlog.length and stream not in taken
            if end > place["sequence"] and not waits:
                ends[stream] = {"incarnation": place["incarnation"], "sequence": end}
        known = start["streams"]
        # A stream enters the offset with its first messages.
        ends = {name: at for name, at in ends.items() if at["sequence"] or name in known}
        return {"version": VERSION, "streams": ends}

    def _position(
        self, stream: str, position: dict[str, Any] | None, info: dict[str, Any]
    ) -> dict[str, Any]:
        """Where the query is in a stream, which may have been made anew, or have lost its end."""
        beginning = _beginning(info["created"])
        if position is None:
            return beginning
        if not self._options.restart_recreated:
            return position
        if position["incarnation"] == info["created"]:
            end = info["state"]["last_seq"]
            if end >= position["sequence"]:
                return position
            _log.warning(
                "stream %s ends at %d, and was read up to %d: the query goes on behind its end",
                stream, end, position["sequence"],
            )  # fmt: skip
            return {"incarnation": info["created"], "sequence": end}
        _log.warning(
            "stream %s was created again: the query reads the new one from its start, and not "
            "what the old one had behind sequence %d",
            stream, position["sequence"],
        )  # fmt: skip
        return beginning

    def _holds_back(self, waiting: int) -> bool:
        """Whether `waiting` messages are too few for a microbatch, and not old enough."""
        options, now = self._options, time.monotonic()
        last = self._last_trigger
        few = 0 < waiting < options.min_per_trigger and self._frozen is None
        if few and last is not None and now - last < options.trigger_delay:
            return True
        if waiting:
            self._last_trigger = now
        return False

    def _rest(self) -> None:
        """Wait until streams may be asked again."""
        wait = self._next_poll - time.monotonic()
        if wait > 0:
            time.sleep(wait)

    def _backlog(self, stream: str, position: dict[str, Any], info: dict[str, Any]) -> Backlog:
        """What is there to read behind `position`. Raises StreamRecreatedError."""
        state, sequence = info["state"], position["sequence"]
        if info["created"] != position["incarnation"] or state["last_seq"] < sequence:
            raise recreated(stream)
        if not sequence:
            check_retention(info["config"])
        end = state["last_seq"]
        if self._frozen is not None:
            end = min(end, self._frozen.get(stream, sequence))
        # What is gone below the first sequence is no part of the limit.
        begin = max(sequence, min(state["first_seq"] - 1, end))
        mean = max(1, state["bytes"] // state["messages"]) if state["messages"] else 1
        return Backlog(begin, end, mean)

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
        before = self._known(start)
        parts: list[SequenceRange] = []
        for stream, place in self._known(end).items():
            position = before.get(stream) or _beginning(place["incarnation"])
            if position["incarnation"] != place["incarnation"]:
                position = _beginning(place["incarnation"])
            if place["sequence"] > position["sequence"]:
                parts += self._plan(stream, position, place["sequence"])
        return packed(parts, self._options)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_partition(self._options, self._layout, partition)

    def stop(self) -> None:
        """The query ended."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _plan(self, stream: str, position: dict[str, Any], end: int) -> list[SequenceRange]:
        options = self._options
        if position.get("earliest") and options.allow_expired is None:
            options = replace(options, allow_expired=True)
        incarnation, first = position["incarnation"], position["sequence"] + 1
        promised = not position.get("earliest")

        def ask(connection: Connection) -> list[SequenceRange]:
            found = plan_between(connection, options, stream, incarnation, first, end)
            wanted = SequenceRange(stream, incarnation, first, end)
            return with_gone(connection, options, wanted, found, promised)

        try:
            return self._retried(ask)
        except UnknownStreamError as error:
            if not is_gone(error):
                raise
            self._lose(stream, first)
            return []
        except StreamRecreatedError:
            if not options.restart_recreated:
                raise
            _log.warning(
                "stream %s was created again: sequences %d to %d of the old one are lost",
                stream, first, end,
            )  # fmt: skip
            return []

    def _lose(self, stream: str, first: int) -> None:
        """Go on without a stream that is gone. Raises UnknownStreamError unless that is allowed."""
        if self._options.fail_on_data_loss:
            read = f"up to sequence {first - 1}" if first > 1 else "nothing of it yet"
            raise UnknownStreamError(
                f"{unknown_stream(self._options, stream)}. It was there when this query began, "
                f"which has read {read}: whatever it had from sequence {first} on is lost. Set "
                "failOnDataLoss=false to go on without it"
            )
        if stream not in self._gone:
            self._gone.add(stream)
            _log.warning("stream %s is gone: the query goes on without it", stream)

    def _known(self, offset: dict[str, Any]) -> dict[str, Any]:
        """The positions in an offset. Raises OptionError when they are of other streams."""
        options = self._options
        streams: Any = offset.get("streams", {}) if isinstance(offset, dict) else None
        if not isinstance(streams, dict) or not all(map(_is_position, streams.values())):
            raise OptionError(
                "the checkpoint is damaged: an offset needs the incarnation and the sequence of "
                "each stream. Restore the newest file of its folder 'offsets', or begin with a "
                "new checkpoint"
            )
        named = set(streams) == set(options.streams)
        if options.patterns:
            named = all(matches(options.patterns, stream) for stream in streams)
        if offset.get("version") != VERSION or not named:
            raise OptionError(
                f"the checkpoint is of a query over {', '.join(sorted(streams)) or 'other data'}, "
                f"not {', '.join(options.streams or options.patterns)}: use a new checkpoint for "
                "other streams"
            )
        return dict(streams)

    def _news(self, known: Mapping[str, Any]) -> _Infos:
        """What the streams say; without news not more often than every `POLL_SECONDS`.

        Raises UnknownStreamError when one of the `known` streams is gone.
        """
        began = time.monotonic()
        infos = self._infos(known)
        news = any(_has_news(info, known.get(name)) for name, info in infos.items())
        if not news and self._next_poll > time.monotonic():
            self._rest()
            began = time.monotonic()
            infos = self._infos(known)
        ended = time.monotonic()
        self._next_poll = ended + max(POLL_SECONDS, (POLL_SHARE - 1) * (ended - began))
        for stream, position in known.items():
            if stream not in infos:
                self._lose(stream, position["sequence"] + 1)
        return infos

    def _infos(self, known: Iterable[str] = ()) -> _Infos:
        """What the streams of the options say, and the `known` ones; those that exist."""
        options = self._options

        def ask(connection: Connection) -> _Infos:
            names = {*stream_names(connection, options), *known}
            return stream_infos(connection, options, sorted(names))

        return self._retried(ask)

    def _retried(self, ask: Callable[[Connection], _T]) -> _T:
        """Ask over the kept connection; a server may be away for `retryTimeout` seconds."""
        waits = Waits(self._options.retry_timeout)
        while True:
            try:
                if self._connection is None:
                    self._connection = Connection(self._options.endpoint)
                return ask(self._connection)
            except (ConnectError, WireError, UnknownStreamError) as error:
                if is_gone(error) or waits.over():
                    raise
            self.stop()
            waits.wait()


def _beginning(incarnation: str) -> dict[str, Any]:
    """The position of a stream that appeared while the query was running: all of it is read."""
    return {"incarnation": incarnation, "sequence": 0, "earliest": True}


def _is_position(position: Any) -> bool:
    """Whether that is what an offset has for a stream."""
    if not isinstance(position, dict) or not isinstance(position.get("incarnation"), str):
        return False
    sequence = position.get("sequence")
    return isinstance(sequence, int) and sequence >= 0


def _has_news(info: dict[str, Any], position: dict[str, Any] | None) -> bool:
    return bool(info["state"]["last_seq"] > (position["sequence"] if position else 0))
