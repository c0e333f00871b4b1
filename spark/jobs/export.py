"""Export: a range of streams as files, which goes on where it was interrupted.

The folder has a file `_export.json`: what is exported, and which pieces of it are done. A piece
is a range of sequences and a folder of its own. A piece is done when its files are complete and
the file says so; whatever else is in a piece's folder is written again.
"""

import itertools
import json
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.spark.errors import LostRangeError, OptionError, SourceError
from headwater.spark.jobs.job import (
    check_writable,
    checked_source,
    job_session,
    load,
    missing_rows,
)
from headwater.spark.jobs.watch import JobProgress, watched
from headwater.spark.jobs.whole_file import write_whole
from headwater.spark.options import SourceOptions, parse_options
from headwater.spark.read.account import ReadAccount, ReadPositions, classify
from headwater.spark.read.planning import SequenceRange, plan_ranges, recreated
from headwater.spark.read.stream_names import stream_info, stream_names
from headwater.spark.wire.connection import Connection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("parquet", "json", "csv")
#: Ranges of a piece, each a task: at most that much is done again.
PIECE = 8
MANIFEST = "_export.json"
_FORMAT = {"columns": "stream,subject,sequence,timestamp,headers,payload", "headers": "map"}
_OURS = {name.lower() for name in _FORMAT} | {
    "account", "valueformat", "valueschema", "metadataprefix", "mode"
}
#: What must be the same when an export goes on.
_SAME = ("stream", "subjects", "starting", "ending", "startingTimestamp", "endingTimestamp")
#: RFC 4180: quotes are doubled, and a line feed may be within them.
CSV = {"header": "true", "quote": '"', "escape": '"', "multiLine": "true"}
#: Of a time as text, which Spark writes in milliseconds otherwise.
MICROSECONDS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"


@dataclass(frozen=True)
class ExportResult:
    """What an export wrote: `rows` in `pieces` pieces below `path`, `resumed` ones before.

    `read_back` rows are in the files, as they were read again. Of `planned` rows, `expired` and
    `lost` ones did not come. All are sums over all pieces, those of earlier runs included.
    """

    rows: int
    read_back: int
    pieces: int
    resumed: int
    planned: int
    expired: int
    lost: int
    path: str
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, for JSON."""
        return asdict(self)


def check_export(
    given: Mapping[str, str], path: str, form: str, resume: bool
) -> None:
    """Raise what can be known to be wrong before anything is started."""
    if form not in FORMATS:
        raise OptionError(f"format {form!r} is none of {', '.join(FORMATS)}")
    if "://" in path:
        raise OptionError(f"{path} is no folder of a mounted file system, which an export needs")
    # When an export goes on, what it has may be gone from the stream by now.
    late = ("starting",) if resume else ()
    source = {name: text for name, text in given.items() if name.lower() not in late}
    checked_source("export", source, _OURS)
    if resume:
        _same_request(read_manifest(Path(path)), _request(given, form), path)
    elif Path(path).exists():
        raise FileExistsError(
            f"{path} exists; choose another path, or go on with an export that stopped: --resume"
        )
    check_writable(path)


def run_export(
    source: Mapping[str, str],
    path: str,
    form: str = "parquet",
    resume: bool = False,
    progress: Callable[[JobProgress], None] | None = None,
    spark: "SparkSession | None" = None,
    piece: int = PIECE,
) -> ExportResult:
    """Write the messages of a range below the folder `path`, which all executors must see.

    The range is fixed at the first run. With `resume` an export goes on that was interrupted,
    with the same source and format. A piece has `piece` ranges of a read. JSON and CSV have
    payloads as base64; CSV has headers as JSON.

    Raises OptionError, FileExistsError, StreamRecreatedError, SourceError for a folder that takes
    no files, the source's errors, and Spark's with those in them.
    """
    started = time.monotonic()
    check_export(source, path, form, resume)
    options = parse_options(source)
    folder = Path(path)
    if resume:
        manifest = read_manifest(folder)
    else:
        manifest = _begun(_request(source, form), _cut(plan_ranges(options), piece))
        _make(folder, manifest)
    _check_incarnations(manifest, options)
    with ExitStack() as stack:
        if any("rows" not in work for work in manifest["pieces"]):
            spark = stack.enter_context(job_session("export", spark))
        return _work_off(spark, source, path, form, manifest, progress, started)


def check_more(given: Mapping[str, str], path: str, form: str) -> None:
    """Raise what can be known to be wrong before an export begins that goes on for ever."""
    check_export(given, path, form, resume=(Path(path) / MANIFEST).exists())


def export_more(
    source: Mapping[str, str],
    path: str,
    form: str,
    progress: Callable[[JobProgress], None] | None,
    spark: "SparkSession",
    piece: int = PIECE,
) -> ExportResult:
    """Export what the streams got behind the last piece, after pieces that are not done.

    Raises LostRangeError when messages left the streams before they were exported, unless
    options allow that; and like `run_export`.
    """
    started = time.monotonic()
    check_more(source, path, form)
    options, folder = parse_options(source), Path(path)
    if (folder / MANIFEST).exists():
        manifest = read_manifest(folder)
    else:
        manifest = _begun(_request(source, form), [])
        _make(folder, manifest)
    _check_incarnations(manifest, options)
    manifest["pieces"] += _behind(manifest, options, piece)
    write_whole(folder / MANIFEST, manifest)
    return _work_off(spark, source, path, form, manifest, progress, started)


def _behind(
    manifest: Mapping[str, Any], options: SourceOptions, piece: int
) -> list[dict[str, Any]]:
    """Pieces behind the last ones; of streams without a piece, those of the options."""
    ends = {work["range"]["stream"]: work["range"]["end"] for work in manifest["pieces"]}
    with Connection(options.endpoint) as connection:
        names = stream_names(connection, options)
    pieces: list[dict[str, Any]] = []
    for name in names:
        one = replace(options, streams=(name,), patterns=())
        if name in ends:
            one = replace(one, starting=ends[name] + 1, starting_time=None)
        fresh = _cut(tuple(work for work in plan_ranges(one) if work.planned), piece)
        if fresh and name in ends:
            # What expired between two pieces was never planned.
            front = fresh[0]["range"]
            fresh[0]["gone"] = max(0, front["plan_first"] - ends[name] - 1)
        pieces += fresh
    return pieces


def _work_off(
    spark: "SparkSession | None",
    source: Mapping[str, str],
    path: str,
    form: str,
    manifest: dict[str, Any],
    progress: Callable[[JobProgress], None] | None,
    started: float,
) -> ExportResult:
    """Export the pieces that are not done; needs a session when there are any."""
    folder = Path(path)
    waiting = [work for work in manifest["pieces"] if "rows" not in work]
    resumed = len(manifest["pieces"]) - len(waiting)
    for work in waiting:
        if spark is None:
            raise OptionError("an export needs a session")
        planned = work["range"]["planned"]
        with watched(spark, f"piece {work['range']['start']}", progress, planned):
            work |= _export(spark, source, folder, form, work)
        write_whole(folder / MANIFEST, manifest)
    done = manifest["pieces"]
    sums = {
        name: sum(work[name] for work in done)
        for name in ("rows", "read_back", "planned", "expired", "lost")
    }
    return ExportResult(
        **sums,
        pieces=len(done),
        resumed=resumed,
        path=path,
        seconds=round(time.monotonic() - started, 3),
    )


def _begun(request: dict[str, str], pieces: list[dict[str, Any]]) -> dict[str, Any]:
    """What `_export.json` says at first. By its `id` others know an export that grows and moves."""
    return {"id": uuid.uuid4().hex, "request": request, "pieces": pieces}


def _make(folder: Path, manifest: Mapping[str, Any]) -> None:
    """The folder of a new export; without room for its manifest there is none."""
    folder.mkdir(parents=True)
    try:
        write_whole(folder / MANIFEST, manifest)
    except SourceError:
        with suppress(OSError):
            folder.rmdir()
        raise


def _request(source: Mapping[str, str], form: str) -> dict[str, str]:
    """What is exported. Servers and credentials may change before an export goes on."""
    given = {name.lower(): text for name, text in source.items()}
    wanted = {name: given[name.lower()] for name in _SAME if name.lower() in given}
    return {**wanted, "format": form}


def _same_request(manifest: Mapping[str, Any], request: Mapping[str, str], path: str) -> None:
    old = manifest["request"]
    for name in sorted(old.keys() | request.keys()):
        if old.get(name) != request.get(name):
            raise OptionError(
                f"the export in {path} has {name} {old.get(name)!r}, not {request.get(name)!r}: "
                "go on with the same, or choose another path"
            )


def _cut(ranges: tuple[SequenceRange, ...], piece: int) -> list[dict[str, Any]]:
    """Pieces of `piece` ranges that follow each other in one stream."""
    pieces = []
    for _, group in itertools.groupby(ranges, key=lambda work: work.stream):
        works = list(group)
        for at in range(0, len(works), piece):
            some = works[at : at + piece]
            whole = replace(
                some[0], end=some[-1].end, planned=sum(work.planned for work in some)
            )
            pieces.append({"range": asdict(whole), "tasks": len(some)})
    return pieces


def _check_incarnations(manifest: Mapping[str, Any], options: SourceOptions) -> None:
    """Raises StreamRecreatedError when a stream is another one than at the first run."""
    then = {work["range"]["stream"]: work["range"]["incarnation"] for work in manifest["pieces"]}
    for stream, incarnation in then.items():
        if _info(options, stream)["created"] != incarnation:
            raise recreated(stream)


def _info(options: SourceOptions, stream: str) -> dict[str, Any]:
    with Connection(options.endpoint) as connection:
        return stream_info(connection, options, stream)


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `_export.json` says. Raises OptionError when there is none, or another program's."""
    try:
        found = json.loads((folder / MANIFEST).read_text())
        if not {"request", "pieces"} <= found.keys():
            raise ValueError("fields are missing")
    except (OSError, ValueError, AttributeError) as error:
        raise OptionError(
            f"{folder} has no export that can be read: {error}. It is the folder that "
            "`headwater spark run export --out` wrote"
        ) from error
    return dict(found)


def _export(
    spark: "SparkSession",
    source: Mapping[str, str],
    folder: Path,
    form: str,
    work: Mapping[str, Any],
) -> dict[str, int]:
    """Write one piece, read it back, and say how many rows that were.

    Raises LostRangeError when rows are missing that the source's options do not give up.
    """
    account, options = ReadAccount(spark), parse_options(source)
    planned = SequenceRange(**work["range"])
    ours = {
        "stream": planned.stream,
        "starting": str(planned.start),
        "ending": str(planned.end),
        "partitions": str(work["tasks"]),
        "allowExpired": "true",
    }
    # Times were made sequences when the pieces were cut.
    left_out = {"streams", "startingtimestamp", "endingtimestamp", *(name.lower() for name in ours)}
    rest = {name: text for name, text in source.items() if name.lower() not in left_out}
    target = str(folder / f"stream={planned.stream}" / f"from={planned.start}")
    frame = _written_as(load(spark, rest, **_FORMAT, **ours, **account.options), form)
    style = CSV if form == "csv" else {}
    texts = {} if form == "parquet" else {"timestampFormat": MICROSECONDS}
    frame.write.mode("overwrite").options(**style, **texts).format(form).save(target)
    back = spark.read.schema(frame.schema).options(**style).format(form).load(target).count()
    total = account.total
    # What went before this run's own plan counts as well.
    gone = classify(
        planned, planned.planned - total.planned, ReadPositions(), _info(options, planned.stream)
    )
    expired, lost = missing_rows(total, back)
    expired += gone.expired + work.get("gone", 0)
    lost += gone.lost
    if (expired and not options.may_expire) or (lost and options.fail_on_data_loss):
        raise LostRangeError(
            f"of {planned.planned} planned messages of stream {planned.stream!r}, sequences "
            f"{planned.start} to {planned.end}, {expired} expired and {lost} are lost. Set "
            "allowExpired=true (--allow-expired) or failOnDataLoss=false (--allow-loss), and "
            "resume, to export what is left"
        )
    return {
        "rows": total.delivered,
        "read_back": back,
        "planned": planned.planned + work.get("gone", 0),
        "expired": expired,
        "lost": lost,
    }


def _written_as(frame: "DataFrame", form: str) -> "DataFrame":
    """The columns as the format can have them; the folder's name says the stream."""
    from pyspark.sql import functions as f

    rows = frame.drop("stream")
    if form != "parquet":
        # Spark breaks it into lines of 76 characters; readers of CSV go by lines.
        rows = rows.withColumn("payload", f.translate(f.base64("payload"), "\r\n", ""))
    if form == "csv":
        rows = rows.withColumn("headers", f.to_json("headers"))
    return rows
