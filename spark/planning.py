"""Plan of a read: which sequences of which streams, cut into ranges. Runs on the driver."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headwater.spark.connection import Connection
from headwater.spark.errors import (
    ApiError,
    LostRangeError,
    UnknownStreamError,
    UnsupportedStreamError,
)
from headwater.spark.options import SourceOptions

#: Rows and bytes of a partition when no number of partitions is given. 250 k rows are well
#: below a second of work, so a lost task costs little; 32 MiB is 16 Arrow batches.
TARGET_ROWS = 250_000
TARGET_BYTES = 32 << 20
#: Most partitions of one stream.
MAX_PARTITIONS = 10_000

_STREAM_NOT_FOUND = 10059
_NOT_ENABLED = (10039, 10076)


@dataclass(frozen=True)
class StreamPlan:
    """One stream at load time.

    `start` and `end` are the sequences to read, both inclusive; `end` < `start` reads nothing.
    `incarnation` is the stream's creation time: a stream that is deleted and made again
    starts anew at sequence 1, and must not be taken for the old one. `held` is the number of
    messages in the range, None when it is not known. `compacted` streams lose old messages
    of a subject by design (KV buckets). `mean_bytes` is the mean stored size of a message.
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


@dataclass(frozen=True)
class SequenceRange:
    """Sequences `start` to `end`, both inclusive, of one incarnation of a stream."""

    stream: str
    incarnation: str
    start: int
    end: int
    compacted: bool = False
    mean_bytes: int = 256


def stream_info(connection: Connection, options: SourceOptions, stream: str) -> dict[str, Any]:
    """STREAM.INFO. Raises UnknownStreamError with what to check when there is no such stream."""
    try:
        return connection.api(f"{options.api_prefix}.STREAM.INFO.{stream}")
    except ApiError as error:
        where = f"the API {options.api_prefix} of this account"
        if error.err_code == _STREAM_NOT_FOUND:
            raise UnknownStreamError(
                f"stream {stream!r} does not exist in {where}: check the name, domain and account"
            ) from error
        if error.code == 503 or error.err_code in _NOT_ENABLED:
            raise UnknownStreamError(
                f"JetStream does not answer in {where}, so stream {stream!r} cannot be read: "
                "check that JetStream is on, and option 'domain'"
            ) from error
        raise


def plan_streams(options: SourceOptions) -> tuple[StreamPlan, ...]:
    """Ask each stream for its state, once, and fix the sequences to read.

    Raises UnknownStreamError, UnsupportedStreamError, LostRangeError, ConnectError, AuthError.
    """
    with Connection(options.endpoint) as connection:
        return tuple(
            _plan(connection, options, stream_info(connection, options, stream))
            for stream in options.streams
        )


def _plan(connection: Connection, options: SourceOptions, info: dict[str, Any]) -> StreamPlan:
    config, state = info["config"], info["state"]
    stream = config["name"]
    if config.get("retention", "limits") != "limits":
        raise UnsupportedStreamError(
            f"stream {stream!r} has retention {config['retention']!r}: what is read would be "
            "deleted from it. Read a stream that sources or mirrors it instead"
        )
    first, last, messages = state["first_seq"], state["last_seq"], state["messages"]
    start = max(options.starting, first, 1)
    end = last if options.ending is None else min(options.ending, last)
    if 0 < options.starting < first and options.starting <= end and options.fail_on_data_loss:
        raise LostRangeError(
            f"stream {stream!r} starts at sequence {first}, but 'starting' is {options.starting}: "
            "the sequences between are gone. Set failOnDataLoss=false to read what is left"
        )
    whole = start <= first and end == last and not options.filters
    return StreamPlan(
        stream=stream,
        incarnation=info["created"],
        first=first,
        last=last,
        start=start,
        end=end,
        held=messages if whole else _held(connection, options, stream, start, end),
        compacted=config.get("max_msgs_per_subject", -1) > 0,
        mean_bytes=max(1, state["bytes"] // messages) if messages else 256,
    )


def _held(
    connection: Connection, options: SourceOptions, stream: str, start: int, end: int
) -> int | None:
    """Messages in start..end that pass the filters, by what two consumers have pending.

    Publishes between the two would falsify the difference; None when five tries all saw some.
    """
    if end < start:
        return 0
    for _ in range(5):
        before = stream_info(connection, options, stream)["state"]
        after_end = _pending(connection, options, stream, end + 1)
        from_start = _pending(connection, options, stream, start)
        after = stream_info(connection, options, stream)["state"]
        same = all(before[key] == after[key] for key in ("last_seq", "first_seq", "messages"))
        if same:
            return max(0, from_start - after_end)
    return None


def _pending(connection: Connection, options: SourceOptions, stream: str, start: int) -> int:
    name, pending = create_consumer(connection, options, stream, start, idle_seconds=5)
    connection.api(f"{options.api_prefix}.CONSUMER.DELETE.{stream}.{name}")
    return pending


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
    name = f"spark-{connection.inbox.rpartition('.')[2]}-{start}"
    config: dict[str, Any] = {
        "name": name,
        "description": "headwater spark read",
        "ack_policy": "none",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": start,
        "replay_policy": "instant",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": idle_seconds * 1_000_000_000,
    }
    if headers_only:
        config["headers_only"] = True
    subject = f"{options.api_prefix}.CONSUMER.CREATE.{stream}.{name}"
    if len(options.filters) == 1:
        config["filter_subject"] = options.filters[0]
        subject += f".{options.filters[0]}"
    elif options.filters:
        config["filter_subjects"] = list(options.filters)
    answer = connection.api(subject, {"stream_name": stream, "config": config})
    return answer["name"], int(answer.get("num_pending", 0))


def cut_ranges(plan: StreamPlan, partitions: int | None) -> Iterator[SequenceRange]:
    """Cut the plan into ranges of nearly equal length; none when there is nothing to read."""
    span = plan.end - plan.start + 1
    if span <= 0:
        return
    if partitions is None:
        rows = span if plan.held is None else min(span, max(plan.held, 1))
        wanted = max(rows / TARGET_ROWS, rows * plan.mean_bytes / TARGET_BYTES)
        partitions = min(MAX_PARTITIONS, int(wanted) + 1)
    partitions = min(partitions, span)
    for index in range(partitions):
        yield SequenceRange(
            stream=plan.stream,
            incarnation=plan.incarnation,
            start=plan.start + span * index // partitions,
            end=plan.start + span * (index + 1) // partitions - 1,
            compacted=plan.compacted,
            mean_bytes=plan.mean_bytes,
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
            if error.code == 404 and error.err_code != _STREAM_NOT_FOUND:
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
