"""Jobs that go on in rounds: each round is a batch over what came in since the last one."""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.spark.errors import OptionError
from headwater.spark.jobs.audit import AuditResult, audit_state, check_audit, run_audit
from headwater.spark.jobs.backfill import BackfillResult, joined_parts, run_backfill
from headwater.spark.jobs.export import ExportResult, check_more, export_more
from headwater.spark.jobs.following.notebook import Notebook, request_of
from headwater.spark.jobs.watch import JobProgress
from headwater.spark.read.planning import recreated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAUSE = "10s"
_SUMS = (
    "missing", "extra", "different", "expired", "kept", "ranges", "ranges_differing",
    "origin_read", "mirror_read",
)  # fmt: skip


def rounds(pause: float, until_now: bool) -> Iterator[int]:
    """Numbers of rounds, `pause` seconds apart; with `until_now`, one round."""
    yield 1
    number = 1
    waiting = threading.Event()
    while not until_now:
        waiting.wait(pause)
        number += 1
        yield number


def audit_notebook(
    origin: Mapping[str, str], mirror: Mapping[str, str], folder: str, with_time: bool
) -> Notebook:
    """Check all that can be known to be wrong, and open the job's notebook."""
    if any(name.lower() in ("starting", "startingtimestamp") for name in origin):
        raise OptionError("--follow begins at the start of the streams: leave --starting away")
    names = {name.lower(): text for name, text in mirror.items()}
    request = request_of(
        "audit", origin, mirror=names["stream"], mirror_domain=names.get("domain", ""),
        with_time=str(with_time),
    )  # fmt: skip
    notebook = Notebook(folder, request)
    check_audit(origin, mirror, None, False)
    return notebook


def audit_round(
    origin: Mapping[str, str],
    mirror: Mapping[str, str],
    notebook: Notebook,
    found: Callable[[dict[str, Any]], None],
    spark: "SparkSession",
    with_time: bool = True,
    progress: Callable[[JobProgress], None] | None = None,
) -> AuditResult | None:
    """Audit what the mirror got since the last round; None when that is nothing.

    Raises StreamRecreatedError when a stream is another one than at the last round.
    """
    ends, made = audit_state(origin, mirror)
    before = notebook.memo.get("made", made)
    for now, then, side in zip(made, before, (origin, mirror), strict=True):
        if now != then:
            raise recreated({name.lower(): text for name, text in side.items()}["stream"])
    start = int(notebook.memo.get("next", 1))
    if ends < start:
        return None
    source = {**origin, "starting": str(start)}
    result = run_audit(source, mirror, None, False, with_time, progress, spark)
    for finding in result.findings:
        found(finding)
    counts = {name: getattr(result, name) for name in _SUMS}
    memo = {"next": result.end + 1, "made": made, "behind": result.behind}
    notebook.begin()
    notebook.done(notebook.batch + 1, memo, counts)
    return result


def export_round(
    source: Mapping[str, str],
    folder: str,
    form: str,
    spark: "SparkSession",
    progress: Callable[[JobProgress], None] | None = None,
) -> ExportResult:
    """Export what came in since the last round, after what an earlier run left to do."""
    return export_more(source, folder, form, progress, spark)


def check_export_rounds(source: Mapping[str, str], folder: str, form: str) -> None:
    """Raise what can be known to be wrong before anything is started."""
    if any(name.lower() in ("ending", "endingtimestamp") for name in source):
        raise OptionError("--follow has no end: leave --ending away")
    check_more(source, folder, form)


def backfill_round(
    target: Mapping[str, str],
    folder: str,
    prefix: str,
    before: BackfillResult | None,
    spark: "SparkSession",
    progress: Callable[[JobProgress], None] | None = None,
) -> BackfillResult:
    """Write the pieces that an export got since the last round; what all rounds did `before` is
    added up."""
    found = run_backfill(target, folder, prefix, progress, spark, follow=True)
    if before is None:
        return found
    fresh = [part for part in found.parts if part["kind"] == "written"]
    return replace(
        found,
        rows=before.rows + found.rows,
        already=before.already + found.already,
        earlier=before.earlier,
        seconds=round(before.seconds + found.seconds, 3),
        parts=joined_parts(before.parts + fresh),
    )
