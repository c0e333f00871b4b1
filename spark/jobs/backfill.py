"""Backfill: an export goes into a stream, in order, each message once.

The export is cut into steps of sequences. A step is one batch for the ledger, which lies beside
the target: so a backfill that stopped goes on where it was, from whatever machine. An export that
follows gets new pieces behind the others; their steps are behind the other steps.
"""

import hashlib
import itertools
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.spark.errors import (
    LostRangeError,
    OptionError,
    PublishError,
    StreamRecreatedError,
)
from headwater.spark.jobs.export import CSV, read_manifest
from headwater.spark.jobs.job import MAX_LISTED, checked_source, job_session
from headwater.spark.jobs.watch import JobProgress, watched
from headwater.spark.options import SourceOptions, parse_options
from headwater.spark.read.stream_names import stream_info
from headwater.spark.wire.connection import Connection
from headwater.spark.write.claim import attempt_of
from headwater.spark.write.ledger import BUCKET, Ledger
from headwater.spark.write.publisher import check_subject
from headwater.spark.write.sink import Written, check_target, commit_batch, write_batch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: Sequences of a step. A task that goes on holds the ids of at most so many messages.
STEP = 1 << 20
#: Options that say what to read, which a backfill does not.
_OURS = frozenset(
    ("kv", "keys", "changes", "subjects", "starting", "ending", "columns", "headers", "account",
     "valueformat", "valueschema", "startingtimestamp", "endingtimestamp")
)  # fmt: skip
_MAP = "map<string,string>"
_WRITTEN = "rows long, skipped long, revision long, replayed boolean, last long"


@dataclass(frozen=True)
class BackfillResult:
    """What a backfill wrote into `stream`, in `steps` steps.

    Of `planned` messages in the export, this run wrote `rows`. It found `already` ones, which
    a run that stopped had written, and left `earlier` ones alone, whose steps were complete.
    `parts` are the first MAX_LISTED stretches of an origin's sequences, `first` to `last` of
    `stream` with `rows` messages: `kind` is written by this run, or earlier.
    """

    rows: int
    already: int
    earlier: int
    planned: int
    steps: int
    stream: str
    seconds: float
    parts: list[dict[str, Any]]

    @property
    def whole(self) -> bool:
        """Whether the stream got every message of the export."""
        return self.rows + self.already + self.earlier == self.planned

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Step:
    """Sequences `first` to `last` of a piece of an export, whose files are in `folder`."""

    stream: str
    folder: str
    first: int
    last: int


@dataclass(frozen=True)
class Plan:
    """The steps of a backfill. `query` is its name in the ledger, `rows` those of a folder."""

    form: str
    steps: tuple[Step, ...]
    rows: Mapping[str, int]
    query: str

    def starts(self, number: int) -> bool:
        """Whether this step is the first one of its folder."""
        return number == 0 or self.steps[number - 1].folder != self.steps[number].folder

    def left(self, done: int) -> dict[str, int]:
        """Rows of the folders of which less than all steps are among the first `done` ones."""
        wanted = {work.folder for work in self.steps[done:]}
        return {folder: rows for folder, rows in self.rows.items() if folder in wanted}


def check_backfill(
    target: Mapping[str, str], folder: str, prefix: str, follow: bool = False
) -> None:
    """Raise what can be known to be wrong before anything is started."""
    if prefix:
        try:
            check_subject(f"{prefix}x")
        except PublishError as error:
            raise OptionError(f"--prefix {prefix!r}: {error}") from error
    options = checked_source("backfill", target, _OURS)
    if len(options.streams) != 1:
        raise OptionError("a backfill goes into one stream: name one in --stream")
    _progress(options, plan_backfill(folder, prefix, follow=follow))


def run_backfill(
    target: Mapping[str, str],
    folder: str,
    prefix: str = "",
    progress: Callable[[JobProgress], None] | None = None,
    spark: "SparkSession | None" = None,
    step: int = STEP,
    follow: bool = False,
) -> BackfillResult:
    """Write the messages of the export in `folder`, which all executors must see.

    `target` are options of `format("headwater")`: servers, the stream, a login. `prefix` is put
    before each subject. Headers that begin with Nats- are left out: they told the stream of the
    origin what to do. A step has `step` sequences. With `follow` the export may have pieces that
    are not complete: those before the first of them are written.

    Raises OptionError, LostRangeError when the files lack rows, StreamRecreatedError,
    FencedError, the sink's errors, and Spark's with those in them.
    """
    started = time.monotonic()
    check_backfill(target, folder, prefix, follow)
    options, plan = parse_options(target), plan_backfill(folder, prefix, step, follow)
    done = _progress(options, plan)
    written, left = [], plan.left(done)
    # What a folder has whose steps are all complete is said of the first of them.
    counts = {
        number: plan.rows[work.folder]
        for number, work in enumerate(plan.steps)
        if work.folder not in left and plan.starts(number)
    }
    if left:
        with job_session("backfill", spark) as session:
            with watched(session, "check", progress):
                counts |= _counts(session, plan, left, step)
            for number, work in enumerate(plan.steps):
                if number >= done and counts[number]:
                    with watched(session, f"sequence {work.first}", progress):
                        rows = _rows(session, plan, work, prefix)
                        written.append(_write(options, plan.query, number, rows, counts[number]))
    parts = [
        {
            **asdict(work),
            "rows": counts.get(number, 0),
            "kind": "earlier" if number < done else "written",
        }
        for number, work in enumerate(plan.steps)
    ]
    return BackfillResult(
        rows=sum(each.rows for each in written),
        already=sum(each.skipped for each in written),
        earlier=sum(counts.get(number, 0) for number in range(done)),
        planned=sum(plan.rows.values()),
        steps=len(plan.steps),
        stream=options.streams[0],
        seconds=round(time.monotonic() - started, 3),
        parts=joined_parts(parts),
    )


def joined_parts(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Stretches of sequences, those put together that follow each other, and MAX_LISTED at most."""
    found: dict[str, dict[str, Any]] = {}
    done: list[dict[str, Any]] = []
    for part in parts:
        last = found.get(part["stream"])
        if last is not None and (last["kind"], last["last"] + 1) == (part["kind"], part["first"]):
            last["last"] = part["last"]
            last["rows"] += part["rows"]
            continue
        wanted = {name: part[name] for name in ("stream", "first", "last", "rows", "kind")}
        found[part["stream"]] = wanted
        done.append(wanted)
    return done[:MAX_LISTED]


def plan_backfill(folder: str, prefix: str, step: int = STEP, follow: bool = False) -> Plan:
    """The steps of the export in `folder`, with `follow` of its first pieces that are complete.

    Raises OptionError for an export that is not complete, unless that is followed.
    """
    manifest = read_manifest(Path(folder))
    whole = manifest["pieces"]
    pieces = list(itertools.takewhile(lambda piece: "rows" in piece, whole))
    if len(pieces) < len(whole) and not follow:
        raise OptionError(
            f"the export in {folder} is not complete: finish it with --resume first, or write what "
            "is complete with --follow"
        )
    steps, rows = [], {}
    for piece in pieces:
        stream, start, end = (piece["range"][name] for name in ("stream", "start", "end"))
        place = str(Path(folder) / f"stream={stream}" / f"from={start}")
        rows[place] = piece["rows"]
        steps += [
            Step(stream, place, first, min(first + step - 1, end))
            for first in range(start, end + 1, step)
        ]
    # The folder may move between two runs, and more pieces may come: neither is in the name.
    origin = manifest.get("id") or [piece["range"] for piece in whole[:1]]
    digest = hashlib.sha256(json.dumps([origin, prefix, step], sort_keys=True).encode()).hexdigest()
    return Plan(manifest["request"]["format"], tuple(steps), rows, f"backfill-{digest[:32]}")


def _progress(options: SourceOptions, plan: Plan) -> int:
    """How many steps are complete in the target, which must be able to take the others."""
    name = options.streams[0]
    with Connection(options.endpoint) as connection:
        info = stream_info(connection, options, name)
        check_target(info["config"], "")
        entry = Ledger(connection, options, plan.query).read()
    if entry is None:
        return 0
    # Entries of before said it as the run.
    if (entry.created or entry.run) != info["created"]:
        raise StreamRecreatedError(
            f"this backfill has written into an older stream {name!r}, which was made anew: to "
            f"begin again, delete the key {plan.query}.{name} of the bucket {BUCKET}"
        )
    return entry.batch + 1


def _frame(spark: "SparkSession", plan: Plan, folder: str) -> "DataFrame":
    """Rows of a piece as they are in its files."""
    text = plan.form != "parquet"
    payload, headers = "string" if text else "binary", "string" if plan.form == "csv" else _MAP
    schema = "subject string, sequence long, timestamp timestamp, "
    schema += f"headers {headers}, payload {payload}"
    reader = spark.read.schema(schema).options(**CSV if plan.form == "csv" else {})
    return reader.format(plan.form).load(folder)


def _counts(
    spark: "SparkSession", plan: Plan, folders: Mapping[str, int], step: int
) -> dict[int, int]:
    """Rows of the steps of `folders`, by number, of which each has the rows named there.

    Raises LostRangeError when files of the export are not what it wrote.
    """
    from pyspark.sql import functions as f

    counts: dict[int, int] = {}
    for folder, rows in folders.items():
        numbers = [number for number, work in enumerate(plan.steps) if work.folder == folder]
        at = f.expr(f"(sequence - {plan.steps[numbers[0]].first}) div {step}").alias("at")
        found = {
            row["at"]: row["count"]
            for row in _frame(spark, plan, folder).groupBy(at).count().collect()
        }
        here = {number: found.pop(place, 0) for place, number in enumerate(numbers)}
        if found or sum(here.values()) != rows:
            raise LostRangeError(
                f"the files in {folder} have {sum(here.values())} of {rows} rows that were "
                "exported: bring back what is missing, or export again into another folder"
            )
        counts |= here
    return counts


def _rows(spark: "SparkSession", plan: Plan, work: Step, prefix: str) -> "DataFrame":
    """The step's messages as the sink takes them, in one partition and in their order."""
    from pyspark.sql import functions as f

    rows = _frame(spark, plan, work.folder).where(f.col("sequence").between(work.first, work.last))
    payload, headers = f.col("payload"), f.col("headers")
    if plan.form != "parquet":
        # CSV has no difference between an empty payload and none.
        payload = f.unbase64(f.coalesce(payload, f.lit("")))
    if plan.form == "csv":
        headers = f.from_json(headers, _MAP)
    ordered = rows.repartition(1).sortWithinPartitions("sequence")
    return ordered.select(
        f.concat(f.lit(prefix), "subject").alias("subject"),
        payload.alias("payload"),
        f.map_filter(headers, lambda name, _: ~f.lower(name).startswith("nats-")).alias("headers"),
        f.concat(f.lit(f"{work.stream}:"), "sequence").alias("id"),
    )


def _write(
    options: SourceOptions, query: str, number: int, rows: "DataFrame", count: int
) -> Written:
    """Write one step of `count` rows, and enter it in the ledger."""
    with Connection(options.endpoint) as connection:
        created = stream_info(connection, options, options.streams[0])["created"]
    run = uuid.uuid4().hex

    def publish(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa
        from pyspark import TaskContext

        attempt = attempt_of(TaskContext.get())
        done = asdict(write_batch(options, batches, query, run, number, attempt))
        names = ("rows", "skipped", "revision", "replayed", "last")
        yield pa.RecordBatch.from_pydict({name: [done[name]] for name in names})

    found = rows.mapInArrow(publish, _WRITTEN).collect()
    written = [Written(**row.asDict(), query=query, run=run, created=created) for row in found]
    total = sum(each.rows + each.skipped for each in written)
    if total != count and not any(each.replayed for each in written):
        raise LostRangeError(f"{total} of {count} rows were written: the export's files changed")
    commit_batch(options, written, number)
    return written[0]
