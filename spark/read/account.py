"""Rows planned against rows delivered: which of the missing ones expired, and which are lost.

A stream may drop its oldest messages by its own limits at any time, and that is no fault of a
read. What else is missing is lost. What the stream says of its first sequence tells the two
apart: below it, limits may have been at work, if they can explain that the front moved so far;
above it, only the limit per subject, or times to live of single messages, can.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.spark.read.planning import SequenceRange

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession

#: How far clocks of servers that led a stream may be apart, microseconds.
CLOCK_SLACK = 1_000_000
#: A stream at max_bytes holds that much less one message; the largest message by default.
LARGEST_MESSAGE = 1 << 20
#: Most positions that a range keeps; above that every second one is forgotten.
MAX_POSITIONS = 4096


class ReadPosition(NamedTuple):
    """Where a read was: its last sequence, rows delivered up to it, that row's time in us."""

    sequence: int
    rows: int
    micros: int


class Missing(NamedTuple):
    """Planned rows that did not come: `expired` by the stream's limits, or `lost`."""

    expired: int
    lost: int


class RangeReport(NamedTuple):
    """What became of one range, in rows. `corrupt` rows were delivered, but not as JSON asked."""

    planned: int
    delivered: int
    expired: int
    lost: int
    corrupt: int


class ReadPositions:
    """The way of one read, coarsely: one position per batch."""

    def __init__(self) -> None:
        self._positions: list[ReadPosition] = []

    def add(self, position: ReadPosition) -> None:
        """Remember where the read is."""
        self._positions.append(position)
        if len(self._positions) > MAX_POSITIONS:
            del self._positions[1::2]

    def below(self, sequence: int) -> ReadPosition | None:
        """The last position before `sequence`."""
        return next(
            (position for position in reversed(self._positions) if position.sequence < sequence),
            None,
        )


def classify(
    work: SequenceRange, missing: int, positions: ReadPositions, info: Mapping[str, Any]
) -> Missing:
    """Divide `missing` rows of a range into expired and lost ones.

    `positions` are on the way of what was delivered; `info` is what STREAM.INFO says now.
    """
    if missing <= 0:
        return Missing(0, 0)
    config, state = info["config"], info["state"]
    if config.get("allow_msg_ttl") or _fewer_per_subject(work, config, state):
        return Missing(missing, 0)
    first = state["first_seq"]
    position = positions.below(first)
    room = max(0, min(first, work.end + 1) - work.start - (position.rows if position else 0))
    front = min(missing, room)
    expired = front if _limits_explain(work, position, info) else 0
    expired += min(missing - expired, _replaced_at_most(work, config, state))
    return Missing(expired, missing - expired)


def _replaced_at_most(
    work: SequenceRange, config: Mapping[str, Any], state: Mapping[str, Any]
) -> int:
    """Most rows that newer messages of their subjects may have replaced since the plan."""
    per_subject = config.get("max_msgs_per_subject", -1)
    if per_subject <= 0:
        return 0
    each = per_subject if config.get("allow_rollup_hdrs") else 1
    return int(max(0, state["last_seq"] - work.plan_last) * each)


def _fewer_per_subject(
    work: SequenceRange, config: Mapping[str, Any], state: Mapping[str, Any]
) -> bool:
    """Was the limit per subject lowered since the plan? It then removed from any place, and left
    each subject that it cut with as many as it allows."""
    now, then = config.get("max_msgs_per_subject", -1), work.per_subject
    if then is None or now <= 0:
        return False
    return bool((then <= 0 or now < then) and state["messages"] >= now)


def _limits_explain(
    work: SequenceRange, position: ReadPosition | None, info: Mapping[str, Any]
) -> bool:
    """May the stream's limits on age, count or size have removed all below its first sequence?"""
    config, state = info["config"], info["state"]
    if config.get("discard", "old") == "old":
        # A message that was deleted since the plan had filled the stream when limits worked.
        deleted = _holes_since(work, state)
        if 0 < config.get("max_msgs", -1) <= state["messages"] + deleted:
            return True
        limit = config.get("max_bytes", -1)
        size = config.get("max_msg_size", -1)
        room = (size if size > 0 else LARGEST_MESSAGE) + deleted * work.mean_bytes
        if 0 < limit < state["bytes"] + room:
            return True
    age = config.get("max_age", 0) // 1000
    if age <= 0:
        return False
    now = micros_of(info.get("ts", ""))
    if now is None:
        return True
    # A row that is gone, although it was too young to expire, was removed by something else.
    known = [
        (work.plan_first, micros_of(work.first_ts)),
        (work.plan_last, micros_of(work.last_ts)),
    ]
    if position is not None:
        known.append((position.sequence, position.micros))
    gone = (micros for sequence, micros in known if 0 < sequence < state["first_seq"])
    return all(micros is None or micros + age <= now + CLOCK_SLACK for micros in gone)


def _holes_since(work: SequenceRange, state: Mapping[str, Any]) -> int:
    """Most sequences above the first one that lost their message since the plan."""
    if work.plan_holes is None:
        return 0
    first = state["first_seq"]
    now = state["last_seq"] - first + 1 - state["messages"]
    passed = max(0, first - work.plan_first)
    return int(max(0, now - max(0, work.plan_holes - passed)))


def micros_of(text: str) -> int | None:
    """Microseconds since 1970 of an RFC 3339 time; None for the zero time of an empty stream."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.year < 1970 else round(moment.timestamp() * 1_000_000)


@dataclass(frozen=True)
class _Params:
    """How reports of many tasks become one table: a later report of a range replaces it."""

    def zero(self, value: dict[Any, Any]) -> dict[Any, Any]:
        return {}

    def addInPlace(self, left: dict[Any, Any], right: dict[Any, Any]) -> dict[Any, Any]:
        left.update(right)
        return left


class ReadAccount:
    """Counts what reads in a session delivered, told by their tasks as they end.

    Give its `options` to `spark.read.format("headwater")`. The numbers are those of all ranges
    read to their end so far; reading a range again replaces its report. Not for Spark Connect,
    whose client takes no reports.
    """

    def __init__(self, spark: "SparkSession") -> None:
        params: Any = _Params()
        self._reports: Accumulator[dict[Any, Any]] = spark.sparkContext.accumulator({}, params)

    @property
    def options(self) -> dict[str, str]:
        """Options of the source that make its tasks report here."""
        return {"account": str(self._reports.aid)}

    def forget(self) -> None:
        """Begin anew: what was reported so far counts no more."""
        self._reports.value = {}

    @property
    def total(self) -> RangeReport:
        """The sum of all reports, in rows."""
        return summed(RangeReport(*report) for report in self._reports.value.values())


def summed(reports: Iterable[RangeReport]) -> RangeReport:
    """Add reports up."""
    columns = list(zip(*reports, strict=True))
    return RangeReport(*map(sum, columns)) if columns else RangeReport(0, 0, 0, 0, 0)


def report_missing(account: int, work: SequenceRange, report: RangeReport) -> None:
    """Send the report of a range to the driver's account, with the end of this task."""
    from pyspark.accumulators import _deserialize_accumulator

    params: Any = _Params()
    reports = _deserialize_accumulator(account, {}, params)
    reports.add({(work.stream, work.start, work.end): tuple(report)})
