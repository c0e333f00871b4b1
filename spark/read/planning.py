"""Plan of a read: which sequences of which streams, cut into ranges. Runs on the driver."""

import json
import logging
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from headwater.spark.errors import (
    ApiError,
    LostRangeError,
    StreamRecreatedError,
    UnknownStreamError,
    UnsupportedStreamError,
)
from headwater.spark.options import NO_EXPRESSIONS, SourceOptions
from headwater.spark.read.blocks import serves_blocks
from headwater.spark.read.stream_names import STREAM_NOT_FOUND, is_gone, stream_info, stream_names
from headwater.spark.wire.connection import Connection

_log = logging.getLogger(__name__)

#: Rows and bytes of a partition when no number of partitions is given: about a second of work,
#: beside which the start of a task is little, and a lost task costs no more.
TARGET_ROWS = 1_000_000
TARGET_BYTES = 128 << 20
#: Most sequences and bytes of a range that is small.
SMALL_ROWS = 500
SMALL_BYTES = 1 << 20
#: Most partitions of one stream.
MAX_PARTITIONS = 10_000
#: Most partitions for each core: a lost task costs no more than that part of a core's work.
TASKS_PER_CORE = 32
#: The last time that a stream can keep, ns since 1970: in the year 2262.
TIME_MAX = (1 << 63) - 1
#: Tries to count rows in a moment in which no message comes in.
COUNT_TRIES = 5


@dataclass(frozen=True)
class StreamPlan:
    """One stream at load time.

    `start` and `end` are the sequences to read, both inclusive; `end` < `start` reads nothing.
    `incarnation` is the stream's creation time: a stream that is deleted and made again
    starts anew at sequence 1, and must not be taken for the old one. `held` is the number of
    messages in the range, None when it is not known. `compacted` streams lose old messages
    of a subject by design (KV buckets). `mean_bytes` is the mean stored size of a message.
    `first_ts` and `last_ts` are the times of the messages `first` and `last`, RFC 3339.
    `blocks` says whether the server answers block reads. `per_subject` is the limit of messages
    of one subject, -1 for none. `holes` are the sequences from `first` to `last` that hold no
    message.
    """

    stream: str
    incarnation: str
    first: int
    last: int
    start: int
    end: int
    held: int | None
    compacted: bool
    mean_bytes: int
    first_ts: str = ""
    last_ts: str = ""
    blocks: bool = False
    per_subject: int = -1
    holes: int = 0


@dataclass(frozen=True)
class SequenceRange:
    """Sequences `start` to `end`, both inclusive, of one incarnation of a stream.

    `planned` is how many of them were there at load time and pass the filters; a few less
    where messages came in while they were counted. `plan_first`, `plan_last` and their times
    are those of the whole stream then. `may_expire` says whether limits may remove them.
    `blocks` says whether the server answers block reads. `per_subject` is the limit of messages
    of one subject at load time, -1 for none, None when that is not known. `plan_holes` are the
    sequences of the whole stream that held no message then, None when that is not known. `before`
    says how many sequences of a microbatch, that are not in its ranges, had expired or were lost.
    """

    stream: str
    incarnation: str
    start: int
    end: int
    mean_bytes: int = 256
    planned: int = 0
    plan_first: int = 0
    plan_last: int = 0
    first_ts: str = ""
    last_ts: str = ""
    may_expire: bool = True
    blocks: bool = False
    per_subject: int | None = None
    plan_holes: int | None = None
    before: tuple[int, ...] = (0, 0)

    @property
    def small(self) -> bool:
        """Whether to connect and ask costs more than the rows do."""
        width = self.end - self.start + 1
        return width <= SMALL_ROWS and width * self.mean_bytes <= SMALL_BYTES


def plan_streams(options: SourceOptions) -> tuple[StreamPlan, ...]:
    """Ask each stream for its state, once, and fix the sequences to read.

    Raises UnknownStreamError, UnsupportedStreamError, LostRangeError, ConnectError, AuthError.
    """
    with Connection(options.endpoint) as connection:
        return tuple(_plans(connection, options))


def check_streams(options: SourceOptions) -> None:
    """Raise what `plan_streams` would, without counting: a mistake told at once."""
    with Connection(options.endpoint) as connection:
        for stream in _found(connection, options):
            info = stream_info(connection, options, stream)
            check_retention(info["config"])
            one, last = options.of(stream), info["state"]["last_seq"]
            _check_start(one, info, last if one.ending is None else one.ending)


def plan_ranges(options: SourceOptions) -> tuple[SequenceRange, ...]:
    """The ranges to read, each with the number of rows in it. Raises like `plan_streams`."""
    with Connection(options.endpoint) as connection:
        return tuple(
            work
            for plan in _plans(connection, options)
            for work in _ranges(connection, options.of(plan.stream), plan)
        )


def _plans(connection: Connection, options: SourceOptions) -> Iterator[StreamPlan]:
    """The plans of all streams; one that goes away while it is planned matches no pattern."""
    for stream in _found(connection, options):
        try:
            yield _plan(connection, options.of(stream), stream)
        except UnknownStreamError as error:
            if not (options.patterns and is_gone(error)):
                raise


def _found(connection: Connection, options: SourceOptions) -> tuple[str, ...]:
    """The streams to read now. Raises UnknownStreamError when patterns match none."""
    streams = stream_names(connection, options)
    if not streams:
        patterns = ", ".join(options.patterns)
        hint = f". {NO_EXPRESSIONS}" if set(patterns) & set("|[]()^$+?{}") else ""
        raise UnknownStreamError(
            f"no stream matches {patterns}: check the patterns, the domain and the account{hint}"
        )
    return streams


def plan_between(
    connection: Connection,
    options: SourceOptions,
    stream: str,
    incarnation: str,
    start: int,
    end: int,
) -> tuple[SequenceRange, ...]:
    """The ranges from `start` to `end`, both inclusive, of a stream that was there before.

    Raises StreamRecreatedError when it is not the same any more, and like `plan_streams`.
    """
    bounds = replace(
        options.of(stream), starting=start, ending=end, starting_time=None, ending_time=None
    )
    plan = _plan(connection, bounds, stream)
    if plan.incarnation != incarnation:
        raise recreated(stream)
    if plan.last < end:
        if not options.restart_recreated:
            raise recreated(stream)
        _log.warning(
            "stream %s ends at %d: its sequences up to %d that were there are lost",
            stream, plan.last, end,
        )  # fmt: skip
    return tuple(_ranges(connection, bounds, plan))


def recreated(stream: str) -> StreamRecreatedError:
    """The error for a stream that is another one than before."""
    return StreamRecreatedError(
        f"stream {stream!r} was deleted and created again, put back from an older copy, or lost "
        "its end, after the read was planned: sequences that were read before mean nothing now. "
        "Load the DataFrame again; let a streaming query go on with onRecreated=restart, which "
        "reads a new stream from its start and what comes behind the end of the same one, or "
        "begin with a new checkpoint"
    )


def _ranges(
    connection: Connection, options: SourceOptions, plan: StreamPlan
) -> Iterator[SequenceRange]:
    ranges = list(cut_ranges(plan, options.partitions, options.cores))
    if plan.held == plan.end - plan.start + 1:
        counts = [work.end - work.start + 1 for work in ranges]
    elif len(ranges) == 1 and plan.held is not None:
        counts = [plan.held]
    else:
        counts = _counts(connection, options, plan.stream, [work.start for work in ranges], plan)
        _check_start(options, stream_info(connection, options, plan.stream), plan.end)
    for work, planned in zip(ranges, counts, strict=True):
        yield replace(work, planned=planned, may_expire=options.may_expire)


def check_retention(config: dict[str, Any]) -> None:
    """Raises UnsupportedStreamError when reading would delete what is read."""
    if config.get("retention", "limits") != "limits":
        raise UnsupportedStreamError(
            f"stream {config['name']!r} has retention {config['retention']!r}: what is read would "
            "be deleted from it. Read a stream that sources or mirrors it instead"
        )


def _plan(connection: Connection, options: SourceOptions, stream: str) -> StreamPlan:
    info = stream_info(connection, options, stream)
    config, state = info["config"], info["state"]
    check_retention(config)
    first, last, messages = state["first_seq"], state["last_seq"], state["messages"]
    start = max(options.starting, first, 1)
    end = last if options.ending is None else min(options.ending, last)
    if options.starting_time is not None:
        start = max(start, sequence_at(connection, options, stream, options.starting_time))
    if options.ending_time is not None:
        end = min(end, sequence_at(connection, options, stream, options.ending_time) - 1)
    _check_start(options, info, end)
    plan = StreamPlan(
        stream=stream,
        incarnation=info["created"],
        first=first,
        last=last,
        start=start,
        end=end,
        held=None,
        compacted=config.get("max_msgs_per_subject", -1) > 0,
        mean_bytes=max(1, state["bytes"] // messages) if messages else 256,
        first_ts=state.get("first_ts", ""),
        last_ts=state.get("last_ts", ""),
        per_subject=config.get("max_msgs_per_subject", -1),
        holes=max(0, last - first + 1 - messages),
    )
    if end < start:
        return replace(plan, held=0)
    plan = replace(plan, blocks=_use_blocks(connection, options, stream))
    if not options.filters and messages == last - first + 1:
        return replace(plan, held=end - start + 1)
    if not options.filters and start <= first and end == last:
        return replace(plan, held=messages)
    (held,) = _counts(connection, options, stream, [start], plan)
    _check_start(options, stream_info(connection, options, stream), end)
    return replace(plan, held=held)


def _use_blocks(connection: Connection, options: SourceOptions, stream: str) -> bool:
    if options.read_path == "wire":
        return False
    served = serves_blocks(connection, options, stream)
    if options.read_path == "block" and not served:
        raise UnsupportedStreamError(
            f"stream {stream!r} cannot be read in blocks: its server is not Headwater, or this "
            f"user may not publish to {options.api_prefix}.BLOCK.GET.{stream}. Use readPath=auto"
        )
    return served


def _check_start(options: SourceOptions, info: dict[str, Any], end: int) -> None:
    """An explicit start is a promise: what is gone before the read has begun is an error."""
    first, config = info["state"]["first_seq"], info["config"]
    by_design = config.get("max_msgs_per_subject", -1) > 0 or config.get("allow_msg_ttl")
    if options.may_expire or not options.fail_on_data_loss or by_design:
        return
    if 0 < options.starting < first and options.starting <= end:
        raise LostRangeError(
            f"stream {config['name']!r} starts at sequence {first}, but the read at "
            f"{options.starting}: the sequences between are gone. Set allowExpired=true "
            "(--allow-expired) to read what is left"
        )


def _counts(
    connection: Connection, options: SourceOptions, stream: str, starts: list[int], plan: StreamPlan
) -> list[int]:
    """Rows from each start to before the next one, the last to the end of the plan.

    Consumers count what is pending from a sequence on. Messages that come in between two of
    these counts would falsify their difference, hence a look at the tail before and after;
    where it moved, the count is the least there can be. Later ranges are counted first, so
    that what expires meanwhile makes a count smaller too, and never larger.
    """
    counts: list[int] = []
    after_end = _Tail(connection, options, stream, plan.end + 1)
    most_behind = 0
    for start in reversed(starts):
        least, most = after_end.rows_from(start)
        counts.append(max(0, least - most_behind))
        most_behind = most
    return counts[::-1]


class _Tail:
    """Counts rows between a sequence and a fixed end, over whatever comes in behind the end."""

    def __init__(
        self, connection: Connection, options: SourceOptions, stream: str, start: int
    ) -> None:
        self._connection, self._options, self._stream = connection, options, stream
        self._start = start
        self._pending = self._ask(start)

    def rows_from(self, start: int) -> tuple[int, int]:
        """The least and the most rows there can be; equal when nothing came in meanwhile."""
        best = (0, 1 << 62)
        for _ in range(COUNT_TRIES):
            before, pending = self._pending, self._ask(start)
            self._pending = self._ask(self._start)
            found = (max(0, pending - self._pending), max(0, pending - before))
            if found[1] - found[0] < best[1] - best[0]:
                best = found
            if best[0] == best[1]:
                break
        return best

    def _ask(self, start: int) -> int:
        connection, options = self._connection, self._options
        name, pending = create_consumer(connection, options, self._stream, start, idle_seconds=5)
        _forget(connection, options, self._stream, name)
        return pending


def _forget(connection: Connection, options: SourceOptions, stream: str, name: str) -> None:
    """Delete a consumer. The answer does not matter: what is idle goes by itself."""
    subject = f"{options.api_prefix}.CONSUMER.DELETE.{stream}.{name}"
    connection.publish(subject, b"", f"{connection.inbox}.0")


def sequence_at(connection: Connection, options: SourceOptions, stream: str, nanos: int) -> int:
    """The first sequence that was stored at or after a time; one above the last when none was.

    A consumer that begins there says what it takes for delivered. Times that no message can have
    count as the nearest ones: nats-server turns those behind the year 2262 into the past.
    """
    nanos = min(max(nanos, 0), TIME_MAX)
    whole, rest = divmod(nanos, 1_000_000_000)
    moment = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    start = {"deliver_policy": "by_start_time", "opt_start_time": f"{moment}.{rest:09d}Z"}
    answer = _create(connection, replace(options, filters=()), stream, 5, start)
    _forget(connection, options, stream, answer["name"])
    return int(answer["delivered"]["stream_seq"]) + 1


def create_consumer(
    connection: Connection,
    options: SourceOptions,
    stream: str,
    start: int,
    idle_seconds: int,
    headers_only: bool = False,
) -> tuple[str, int]:
    """Make an ephemeral pull consumer without acks; returns its name and pending messages.

    It is kept in memory, on one replica: a reader that loses it opens another after its last
    row. The server deletes it after `idle_seconds` without a request.
    """
    begin: dict[str, Any] = {"deliver_policy": "by_start_sequence", "opt_start_seq": start}
    if headers_only:
        begin["headers_only"] = True
    answer = _create(connection, options, stream, idle_seconds, begin)
    return answer["name"], int(answer.get("num_pending", 0))


def _create(
    connection: Connection,
    options: SourceOptions,
    stream: str,
    idle_seconds: int,
    begin: dict[str, Any],
) -> dict[str, Any]:
    name = f"spark-{secrets.token_hex(11)}"
    config: dict[str, Any] = {
        "name": name,
        "description": "headwater spark read",
        "ack_policy": "none",
        "replay_policy": "instant",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": idle_seconds * 1_000_000_000,
        **begin,
    }
    subject = f"{options.api_prefix}.CONSUMER.CREATE.{stream}.{name}"
    if len(options.filters) == 1:
        config["filter_subject"] = options.filters[0]
        subject += f".{options.filters[0]}"
    elif options.filters:
        config["filter_subjects"] = list(options.filters)
    return connection.api(subject, {"stream_name": stream, "config": config})


def cut_ranges(
    plan: StreamPlan, partitions: int | None, cores: int | None = None
) -> Iterator[SequenceRange]:
    """Cut the plan into ranges of nearly equal length; none when there is nothing to read.

    Without a number of `partitions` their size decides, and how many `cores` can share.
    """
    span = plan.end - plan.start + 1
    if span <= 0:
        return
    if partitions is None:
        rows = span if plan.held is None else min(span, max(plan.held, 1))
        wanted = max(rows / TARGET_ROWS, rows * plan.mean_bytes / TARGET_BYTES)
        most = MAX_PARTITIONS if cores is None else min(MAX_PARTITIONS, TASKS_PER_CORE * cores)
        partitions = min(most, int(wanted) + 1)
    partitions = min(partitions, span)
    for index in range(partitions):
        yield SequenceRange(
            stream=plan.stream,
            incarnation=plan.incarnation,
            start=plan.start + span * index // partitions,
            end=plan.start + span * (index + 1) // partitions - 1,
            mean_bytes=plan.mean_bytes,
            plan_first=plan.first,
            plan_last=plan.last,
            first_ts=plan.first_ts,
            last_ts=plan.last_ts,
            blocks=plan.blocks,
            per_subject=plan.per_subject,
            plan_holes=plan.holes,
        )


def next_message(
    connection: Connection, options: SourceOptions, stream: str, start: int
) -> int | None:
    """The lowest sequence from `start` that passes the filters, asked of the stream itself."""
    found: list[int] = []
    for subject in options.filters or (">",):
        try:
            answer = connection.api(
                f"{options.api_prefix}.STREAM.MSG.GET.{stream}",
                {"seq": start, "next_by_subj": subject},
            )
        except ApiError as error:
            if error.code == 404 and error.err_code != STREAM_NOT_FOUND:
                continue
            raise
        found.append(int(answer["message"]["seq"]))
    return min(found, default=None)


def pull_body(batch: int, max_bytes: int, expires: float, heartbeat: float) -> bytes:
    """The body of a pull request; times in seconds (ADR-13)."""
    return json.dumps(
        {
            "batch": batch,
            "max_bytes": max_bytes,
            "expires": int(expires * 1e9),
            "idle_heartbeat": int(heartbeat * 1e9),
        }
    ).encode()
