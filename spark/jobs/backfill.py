"""Backfill: an export goes into a stream, in order, each message once.

The export is cut into steps of sequences. A step is one batch for the ledger, which lies beside
the target: so a backfill that stopped goes on where it was, from whatever machine.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
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
from headwater.spark.jobs.job import checked_source, job_session
from headwater.spark.jobs.watch import JobProgress, watched
from headwater.spark.options import SourceOptions, parse_options
from headwater.spark.read.stream_names import stream_info
from headwater.spark.wire.connection import Connection
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
_WRITTEN = "rows long, skipped long, revision long, replayed boolean"


@dataclass(frozen=True)
class BackfillResult:
    """What a backfill wrote into `stream`, in `steps` steps.

    Of `planned` messages in the export, this run wrote `rows`. It found `already` ones, which
    a run that stopped had written, and left `earlier` ones alone, whose steps were complete.
    """

    rows: int
    already: int
    earlier: int
    planned: int
    steps: int
    stream: str
    seconds: float

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


def check_backfill(target: Mapping[str, str], folder: str, prefix: str) -> None:
    """Raise what can be known to be wrong before anything is started."""
    if prefix:
        try:
            check_subject(f"{prefix}x")
        except PublishError as error:
            raise OptionError(f"--prefix {prefix!r}: {error}") from error
    options = checked_source("backfill", target, _OURS)
    if len(options.streams) != 1:
        raise OptionError("a backfill goes into one stream: name one in --stream")
    _progress(options, plan_backfill(folder, prefix))


def run_backfill(
    target: Mapping[str, str],
    folder: str,
    prefix: str = "",
    progress: Callable[[JobProgress], None] | None = None,
    spark: "SparkSession | None" = None,
    step: int = STEP,
) -> BackfillResult:
    """Write the messages of the export in `folder`, which all executors must see.

    `target` are options of `format("headwater")`: servers, the stream, a login. `prefix` is put
    before each subject. Headers that begin with Nats- are left out: they told the stream of the
    origin what to do. A step has `step` sequences.

    Raises OptionError, LostRangeError when the files lack rows, StreamRecreatedError,
    FencedError, the sink's errors, and Spark's with those in them.
    """
    started = time.monotonic()
    check_backfill(target, folder, prefix)
    options, plan = parse_options(target), plan_backfill(folder, prefix, step)
    done = _progress(options, plan)
    written = []
    with job_session("backfill", spark) as session:
        with watched(session, "check", progress):
            counts = _counts(session, plan, step)
        for number, work in enumerate(plan.steps):
            if number >= done and counts[number]:
                with watched(session, f"sequence {work.first}", progress):
                    rows = _rows(session, plan, work, prefix)
                    written.append(_write(options, plan.query, number, rows, counts[number]))
    return BackfillResult(
        rows=sum(each.rows for each in written),
        already=sum(each.skipped for each in written),
        earlier=sum(counts[:done]),
        planned=sum(plan.rows.values()),
        steps=len(plan.steps),
        stream=options.streams[0],
        seconds=round(time.monotonic() - started, 3),
    )


def plan_backfill(folder: str, prefix: str, step: int = STEP) -> Plan:
    """The steps of the export in `folder`. Raises OptionError for one that is not complete."""
    manifest = read_manifest(Path(folder))
    pieces = manifest["pieces"]
    if not all("rows" in piece for piece in pieces):
        raise OptionError(f"the export in {folder} is not complete: finish it with --resume first")
    steps, rows = [], {}
    for piece in pieces:
        stream, start, end = (piece["range"][name] for name in ("stream", "start", "end"))
        place = str(Path(folder) / f"stream={stream}" / f"from={start}")
        rows[place] = piece["rows"]
        steps += [
            Step(stream, place, first, min(first + step - 1, end))
            for first in range(start, end + 1, step)
        ]
    # The folder may move between two runs, and is no part of the name.
    said = [[piece["range"] for piece in pieces], prefix, step]
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
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
    if entry.run != info["created"]:
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


def _counts(spark: "SparkSession", plan: Plan, step: int) -> list[int]:
    """Rows of each step. Raises LostRangeError when files of the export are not what it wrote."""
    from pyspark.sql import functions as f

    counts = []
    for folder, rows in plan.rows.items():
        firsts = [work.first for work in plan.steps if work.folder == folder]
        number = f.expr(f"(sequence - {firsts[0]}) div {step}").alias("number")
        found = {
            row["number"]: row["count"]
            for row in _frame(spark, plan, folder).groupBy(number).count().collect()
        }
        here = [found.pop(number, 0) for number in range(len(firsts))]
        if found or sum(here) != rows:
            raise LostRangeError(
                f"the files in {folder} have {sum(here)} of {rows} rows that were exported: bring "
                "back what is missing, or export again into another folder"
            )
        counts += here
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

    def publish(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        done = asdict(write_batch(options, batches, query, created, number))
        names = ("rows", "skipped", "revision", "replayed")
        yield pa.RecordBatch.from_pydict({name: [done[name]] for name in names})

    found = rows.mapInArrow(publish, _WRITTEN).collect()
    written = [Written(**row.asDict(), query=query, run=created, created=created) for row in found]
    total = sum(each.rows + each.skipped for each in written)
    if total != count and not any(each.replayed for each in written):
        raise LostRangeError(f"{total} of {count} rows were written: the export's files changed")
    commit_batch(options, written, number)
    return written[0]
