"""Audit: is a mirror what its origin is? By digests of ranges, then message by message.

Both streams are read once. The messages of each range of sequences make one digest: of
sequence, time, subject, headers and payload. Only ranges whose digests differ are read again
and compared by message, so what was merely on its way at the first look is no finding.

The digest is an exclusive or of two 64-bit xxHash values per message. It finds faults; it is
no protection against somebody who forges messages.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.spark.errors import OptionError
from headwater.spark.jobs.job import (
    check_output,
    checked_source,
    job_session,
    kept_findings,
    load,
    planned_rows,
)
from headwater.spark.jobs.watch import JobProgress, watched
from headwater.spark.options import SourceOptions
from headwater.spark.read.account import ReadAccount
from headwater.spark.read.planning import plan_ranges
from headwater.spark.read.stream_names import stream_info
from headwater.spark.wire.connection import Connection

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Sequences of one digest.
SPAN = 16_384
#: Most pieces in which ranges that differ are read again.
MAX_PIECES = 16
_FORMAT = {
    "columns": "subject,sequence,timestamp_ns,headers,payload",
    "headers": "raw",
    "failOnDataLoss": "false",
    "allowExpired": "true",
}
_OURS = {name.lower() for name in _FORMAT if name != "allowExpired"} | {
    *("account", "valueformat", "valueschema", "metadataprefix"),
    *("ending", "endingtimestamp", "startingtimestamp"),
}
#: What a mirror leaves out of headers when it stores, as nats-server does.
_UNSTORED = r"(?im)^Nats-(Expected|Batch)-[^\r\n]*\r\n"
_LIMITS = ("max_age", "max_msgs", "max_bytes", "max_msgs_per_subject")


@dataclass(frozen=True)
class AuditResult:
    """What an audit found, in messages up to sequence `end`, the mirror's last one.

    `missing` ones are in the origin alone, `extra` ones in the mirror alone, `different` ones
    in both and not the same. Limits may have removed the older messages of one side:
    `expired` ones from the front of the mirror, `kept` ones from the front of the origin, and
    they are no fault. `behind` are the origin's messages above `end`.

    `ranges` were compared by digest, `ranges_differing` of them by message. `origin_read` and
    `mirror_read` messages came out of `origin_planned` and `mirror_planned`. `findings` are
    intervals of sequences of one kind: {"kind", "first", "last", "messages"}, the first 1000.
    """

    missing: int
    extra: int
    different: int
    expired: int
    kept: int
    behind: int
    end: int
    ranges: int
    ranges_differing: int
    origin_planned: int
    origin_read: int
    mirror_planned: int
    mirror_read: int
    findings: list[dict[str, Any]]
    seconds: float

    @property
    def same(self) -> bool:
        """Has the mirror what the origin has, as far as it is?"""
        return not (self.missing or self.extra or self.different)

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, for JSON."""
        return asdict(self) | {"same": self.same}


@dataclass(frozen=True)
class _Side:
    """A stream and what STREAM.INFO says of it."""

    source: Mapping[str, str]
    options: SourceOptions

    def info(self) -> dict[str, Any]:
        with Connection(self.options.endpoint) as connection:
            return stream_info(connection, self.options, self.options.streams[0])


def check_audit(
    origin: Mapping[str, str], mirror: Mapping[str, str], out: str | None, overwrite: bool
) -> None:
    """Raise what can be known to be wrong before anything is started."""
    _sides(origin, mirror)
    if out is not None:
        check_output(out, overwrite)


def audit_state(
    origin: Mapping[str, str], mirror: Mapping[str, str]
) -> tuple[int, list[str]]:
    """The mirror's last sequence, and when both streams were made."""
    infos = [side.info() for side in _sides(origin, mirror)]
    return int(infos[1]["state"]["last_seq"]), [str(info["created"]) for info in infos]


def run_audit(
    origin: Mapping[str, str],
    mirror: Mapping[str, str],
    out: str | None = None,
    overwrite: bool = False,
    with_time: bool = True,
    progress: Callable[[JobProgress], None] | None = None,
    spark: "SparkSession | None" = None,
    span: int = SPAN,
) -> AuditResult:
    """Compare two streams with the same sequences: a mirror, or a copy that was restored.

    `origin` and `mirror` are options of `format("headwater")` with one stream each; `subjects`
    and `starting` of the origin count for both. Without `with_time`, times may differ. `out`
    takes all findings as Parquet. `span` is the number of sequences of one digest.

    Raises OptionError, FileExistsError, the source's errors, and Spark's with those in them.
    """
    started = time.monotonic()
    check_audit(origin, mirror, out, overwrite)
    left, right = _sides(origin, mirror)
    # The mirror's end first: what comes into the origin afterwards cannot be missed.
    end = int(right.info()["state"]["last_seq"])
    planned = max(planned_rows(each.source, progress) for each in (left, right))
    with (
        job_session("audit", spark) as session,
        watched(session, "digest", progress, planned) as enter,
    ):
        accounts = ReadAccount(session), ReadAccount(session)
        digests = [
            _range_digests(_messages(session, side, "earliest", end, with_time, account), span)
            for side, account in zip((left, right), accounts, strict=True)
        ]
        buckets = _compared(*digests)
        differing = sorted(row["bucket"] for row in buckets if row["differs"])
        enter("compare")
        pieces = [(low * span, min(end, high * span + span - 1)) for low, high in _runs(differing)]
        counts, findings = _compare(session, left, right, pieces, with_time, out, overwrite)
    totals = [account.total for account in accounts]
    return AuditResult(
        **counts,
        behind=_behind(left, end),
        end=end,
        ranges=len(buckets),
        ranges_differing=len(differing),
        origin_planned=totals[0].planned,
        origin_read=sum(row["left_count"] or 0 for row in buckets),
        mirror_planned=totals[1].planned,
        mirror_read=sum(row["right_count"] or 0 for row in buckets),
        findings=findings,
        seconds=round(time.monotonic() - started, 3),
    )


def _sides(origin: Mapping[str, str], mirror: Mapping[str, str]) -> tuple[_Side, _Side]:
    shared = {
        name: text for name, text in origin.items() if name.lower() in ("subjects", "starting")
    }
    both = []
    for given in (origin, {**mirror, **shared}):
        # Expiry of either side is counted here, hence an explicit start is no promise.
        source = {**given, "allowExpired": "true"}
        options = checked_source("audit", source, _OURS)
        if len(options.streams) != 1:
            raise OptionError("the audit compares one stream with one: name one on each side")
        both.append(_Side(source, options))
    return both[0], both[1]


def _messages(
    spark: "SparkSession",
    side: _Side,
    start: int | str,
    end: int,
    with_time: bool,
    account: ReadAccount | None = None,
) -> "DataFrame":
    """Columns sequence, a and b: two hashes of each message."""
    from pyspark.sql import functions as f

    more = {**_FORMAT, **(account.options if account else {}), "ending": str(end)}
    if start != "earliest":
        more["starting"] = str(max(int(start), side.options.starting, 1))
    frame = load(spark, side.source, **more)
    text = f.decode(f.coalesce("headers", f.lit(b"")), "ISO-8859-1")
    headers = f.regexp_replace(text, _UNSTORED, "")
    bare = f.when(headers.isin("", "NATS/1.0\r\n\r\n"), "").otherwise(headers)
    content: list[Column] = [f.col("sequence"), f.col("subject"), bare, f.col("payload")]
    if with_time:
        content.append(f.col("timestamp_ns"))
    hashes = [f.xxhash64(f.lit(salt), *content).alias(name) for salt, name in ((1, "a"), (2, "b"))]
    return frame.select("sequence", *hashes)


def _range_digests(rows: "DataFrame", span: int) -> "DataFrame":
    from pyspark.sql import functions as f

    bucket = f.expr(f"sequence div {span}").alias("bucket")
    return rows.groupBy(bucket).agg(
        f.count("*").alias("count"), f.bit_xor("a").alias("a"), f.bit_xor("b").alias("b")
    )


def _compared(left: "DataFrame", right: "DataFrame") -> list[Any]:
    """A row for each range: bucket, left_count, right_count, differs."""
    from pyspark.sql import functions as f

    names = ("count", "a", "b")
    other = right.select("bucket", *(f.col(name).alias(f"right_{name}") for name in names))
    mine = left.select("bucket", *(f.col(name).alias(f"left_{name}") for name in names))
    alike = f.lit(True)
    for name in names:
        alike &= f.col(f"left_{name}").eqNullSafe(f.col(f"right_{name}"))
    joined = mine.join(other, "bucket", "full")
    return joined.select("bucket", "left_count", "right_count", (~alike).alias("differs")).collect()


def _runs(buckets: list[int]) -> list[tuple[int, int]]:
    """At most MAX_PIECES intervals that cover sorted buckets, with the least between them."""
    cuts = sorted(
        range(1, len(buckets)), key=lambda at: buckets[at] - buckets[at - 1], reverse=True
    )
    wide = [at for at in cuts[: MAX_PIECES - 1] if buckets[at] - buckets[at - 1] > 1]
    edges = [0, *sorted(wide), len(buckets)]
    return [
        (buckets[low], buckets[high - 1])
        for low, high in zip(edges, edges[1:], strict=False)
        if low < high
    ]


def _compare(
    spark: "SparkSession",
    left: _Side,
    right: _Side,
    pieces: list[tuple[int, int]],
    with_time: bool,
    out: str | None,
    overwrite: bool,
) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Messages by kind of difference, and the intervals in which they are."""
    from pyspark.sql import functions as f

    frames = []
    for start, end in pieces or [(1, 0)]:
        mine = _messages(spark, left, start, end, with_time)
        other = _messages(spark, right, start, end, with_time)
        other = other.select("sequence", f.col("a").alias("c"), f.col("b").alias("d"))
        frames.append(mine.join(other, "sequence", "full"))
    joined = frames[0]
    for frame in frames[1:]:
        joined = joined.union(frame)
    kind = f.expr(
        "CASE WHEN a IS NULL THEN 'extra' WHEN c IS NULL THEN 'missing' "
        "WHEN a <> c OR b <> d THEN 'different' END"
    )
    rows = joined.select("sequence", kind.alias("kind")).where("kind IS NOT NULL").persist()
    try:
        rows.count()
        fronts = [_expiry_front(side.info()) for side in (left, right)]
        rows = rows.select("sequence", _excused(*fronts).alias("kind"))
        found = _intervals(rows)
        counts = {row["kind"]: row["count"] for row in rows.groupBy("kind").count().collect()}
        findings = kept_findings(found, ["first", "kind"], out, overwrite)
    finally:
        rows.unpersist()
    kinds = ("missing", "extra", "different", "expired", "kept")
    return {name: counts.get(name, 0) for name in kinds}, findings


def _excused(left: int, right: int) -> "Column":
    """The kind, where limits explain it: below the front of a side that has limits."""
    from pyspark.sql import functions as f

    return f.expr(
        f"CASE WHEN kind = 'extra' AND sequence < {left} THEN 'kept' "
        f"WHEN kind = 'missing' AND sequence < {right} THEN 'expired' ELSE kind END"
    )


def _expiry_front(info: Mapping[str, Any]) -> int:
    """Below it, the stream's limits may have removed messages; 0 for a stream without limits."""
    config = info["config"]
    limited = config.get("allow_msg_ttl") or any(config.get(name, 0) > 0 for name in _LIMITS)
    return int(info["state"]["first_seq"]) if limited else 0


def _intervals(rows: "DataFrame") -> "DataFrame":
    """Sequences of one kind that follow each other become one row."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    rank = f.row_number().over(Window.partitionBy("kind").orderBy("sequence"))
    island = rows.select("kind", "sequence", (f.col("sequence") - rank).alias("island"))
    return island.groupBy("kind", "island").agg(
        f.min("sequence").alias("first"),
        f.max("sequence").alias("last"),
        f.count("*").alias("messages"),
    ).drop("island")


def _behind(origin: _Side, end: int) -> int:
    """The origin's messages above `end`."""
    start = max(end + 1, origin.options.starting)
    above = replace(origin.options, starting=start, ending=None, allow_expired=True)
    return sum(work.planned for work in plan_ranges(above))
