"""What jobs share: a session, checks before it starts, spans of time, findings, missing rows."""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headwater.spark.errors import OptionError
from headwater.spark.options import SourceOptions, parse_options
from headwater.spark.read.account import RangeReport
from headwater.spark.read.planning import check_streams, plan_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Most findings of one result; `--out` takes all of them.
MAX_LISTED = 1000
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class JobResult(Protocol):
    """What a job returns."""

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, for JSON."""
        ...


@contextmanager
def job_session(name: str, spark: "SparkSession | None") -> "Iterator[SparkSession]":
    """The given session; without one, a local one that is stopped at the end."""
    if spark is not None:
        yield spark
        return
    from headwater.spark.session import build_session, spark_log

    with spark_log() as log:
        own = build_session(f"headwater {name}", log=log)
        try:
            yield own
        finally:
            own.stop()


def checked_source(
    name: str, source: Mapping[str, str], ours: Collection[str], follows: bool = False
) -> SourceOptions:
    """The options of a job's source, whose streams are there and can be read.

    `ours` are the options, in lower case, that the job `name` sets. A job that `follows` may begin
    where the streams end. Raises OptionError and what `check_streams` raises.
    """
    for option in source:
        if option.lower() in ours:
            raise OptionError(f"option '{option}' is set by the {name} itself")
    options = parse_options(source)
    if options.starts or options.ends:
        raise OptionError("a job takes one sequence as --starting, and one as --ending")
    if options.from_latest and not follows:
        raise OptionError(
            "there is nothing behind latest: start at a sequence, or at earliest. A rollup, gaps, "
            "anomaly or uptime with --follow may start at latest"
        )
    if options.ending is not None and options.starting > options.ending:
        raise OptionError(
            f"there is nothing from --starting {options.starting} to --ending {options.ending}"
        )
    check_streams(options)
    return options


def planned_rows(source: Mapping[str, str], wanted: object) -> int:
    """The rows that a read of `source` has, for progress; 0 when nobody `wanted` to know.

    Raises like `plan_ranges`.
    """
    if wanted is None:
        return 0
    options = replace(parse_options(source), partitions=1)
    return sum(work.planned for work in plan_ranges(options))


def check_output(path: str, overwrite: bool) -> None:
    """Fail before the read, not after it. Other file systems are checked by Spark's writer.

    Raises FileExistsError, and OptionError for a folder that cannot be made.
    """
    if "://" in path:
        return
    if not overwrite and Path(path).exists():
        raise FileExistsError(f"{path} exists; choose another path, or overwrite it (--overwrite)")
    check_writable(path)


def check_writable(path: str) -> None:
    """Raise OptionError when there is no place for the local folder `path`."""
    place = Path(path).absolute()
    above = next(each for each in (place, *place.parents) if each.exists())
    if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
        raise OptionError(f"{path} cannot be made: {above} is no folder that you may write to")


def span_micros(text: str, what: str) -> int:
    """Microseconds of a span such as 10s, 1m, 2h or 1d. Raises OptionError that names `what`."""
    match = re.fullmatch(r"(\d{1,6})\s*([smhd])", text.strip().lower())
    if match is None or int(match.group(1)) == 0:
        raise OptionError(f"{what} {text!r} is not like 10s, 1m, 2h or 1d")
    return int(match.group(1)) * _UNITS[match.group(2)] * 1_000_000


def load(spark: "SparkSession", source: Mapping[str, str], **more: str) -> "DataFrame":
    """The messages of the source; options of the job win."""
    return spark.read.format("headwater").options(**{**source, **more}).load()


def missing_rows(total: RangeReport, distinct: int) -> tuple[int, int]:
    """Expired and lost messages, by what was planned and what Spark itself counted."""
    absent = max(0, total.planned - distinct)
    expired = min(absent, total.expired)
    return expired, max(total.lost, absent - expired)


def kept_findings(
    found: "DataFrame", order: list[str], out: str | None, overwrite: bool
) -> list[dict[str, Any]]:
    """The first MAX_LISTED rows in `order`; all rows go into Parquet files in `out`, if given."""
    ordered = found.orderBy(*order)
    if out is not None:
        ordered.write.mode("overwrite" if overwrite else "errorifexists").parquet(out)
    return [row.asDict() for row in ordered.limit(MAX_LISTED).collect()]
