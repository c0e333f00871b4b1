"""`headwater spark`: run a job, or check the installation.

Exit codes: 0 done, 1 failed, 2 wrong usage. With `--json` standard output is one JSON object
and nothing else; progress and messages go to standard error.
"""

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from headwater.spark import cli_running as running
from headwater.spark.cli_follow import (
    follow_anomaly,
    follow_audit,
    follow_backfill,
    follow_export,
    follow_gaps,
    follow_rollup,
    follow_uptime,
    taken,
)
from headwater.spark.cli_options import (
    CHECKPOINT,
    CONF,
    EVENTS,
    FINDINGS,
    FOLLOWING,
    PAUSE,
    PLOT,
    RANGE,
    RUNNING,
    SLICE,
    SOURCE,
    Jobs,
    all_of,
    mirror_options,
    source_options,
)
from headwater.spark.errors import OptionError
from headwater.spark.jobs.detector import QUIET, THRESHOLD
from headwater.spark.jobs.job import span_micros

if TYPE_CHECKING:
    from headwater.spark.jobs.anomaly import AnomalyResult
    from headwater.spark.jobs.gaps import GapsResult
    from headwater.spark.jobs.uptime import UptimeResult


@click.group()
def spark() -> None:
    """Analytics over streams with Apache Spark."""


@spark.group(cls=Jobs)
def run() -> None:
    """Run a ready job."""


@run.command()
@source_options(required=True)
@all_of(RANGE)
@click.option("--out", required=True, metavar="DIR", help="Folder for the Parquet files.")
@click.option("--window", default="1m", show_default=True, help="Window: 10s, 1m, 2h, 1d.")
@click.option(
    "--lateness", default="10m", show_default=True, metavar="SPAN",
    help="With --follow: a window is open for so long behind the newest message.",
)
@click.option("--overwrite", is_flag=True, help="Replace what is in the folder.")
@click.option("--count-ids", is_flag=True, help="Count repeated ids: reads the streams twice.")
@all_of(FOLLOWING)
@all_of(PLOT)
@all_of(RUNNING)
def rollup(
    out: str,
    window: str,
    lateness: str,
    overwrite: bool,
    count_ids: bool,
    plot: str | None,
    master: str,
    verbose: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Roll telemetry up per device, metric and window, into Parquet.

    Every message of the range is counted exactly once; the result says so in numbers. With
    --follow, a window is written when it is closed; messages that come later are counted, and
    their rows are in the folder _late.
    """
    from headwater.spark.jobs.plots import plot_rollup
    from headwater.spark.jobs.rollup import check_rollup, run_rollup

    with running.failures():
        following = taken(given, plot, overwrite=overwrite, count_ids=count_ids)
        span_micros(lateness, "--lateness")
        source = _source(given)
        if following.follow:
            follow_rollup(source, out, window, lateness, following, master, verbose)
            return
        # A mistake must not cost the start of a JVM.
        check_rollup(source, out, window, overwrite)
    with running.failures(), running.session(master, verbose) as session:
        with running.bar() as report:
            result = run_rollup(source, out, window, overwrite, report, session, count_ids)
        running.show(
            result,
            as_json,
            f"{result.rows:,} rows into {result.groups:,} groups in {result.path}",
            f"planned {result.planned:,}, read {result.read:,}, duplicates {result.duplicates:,}, "
            f"expired {result.expired:,}, lost {result.lost:,}, "
            f"no telemetry {result.invalid:,}, "
            + (f"repeated ids {result.duplicate_ids:,}, " if count_ids else "")
            + f"{result.seconds:.1f} s",
        )
        running.draw(plot, plot_rollup, session, out)
    if result.read and not result.rows:
        raise click.ClickException(
            f"none of the {result.read:,} messages is telemetry: a message needs the JSON fields "
            "device, metric and value"
        )
    if result.duplicates or (result.lost and not given["allow_loss"]):
        sys.exit(1)


@run.command()
@source_options(required=True)
@mirror_options()
@all_of(SLICE)
@click.option("--ignore-time", is_flag=True, help="Times may differ: a copy was published anew.")
@all_of(CHECKPOINT)
@all_of(PAUSE)
@all_of(FINDINGS)
@all_of(PLOT)
@all_of(RUNNING)
def audit(
    ignore_time: bool,
    out: str | None,
    overwrite: bool,
    plot: str | None,
    master: str,
    verbose: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Compare a mirror with its origin: missing, extra and different messages.

    --stream is the origin. Both streams have to number their messages alike. Exit code 1 says
    that the mirror has something else than the origin. That it is behind is a number only.
    With --follow, each round compares what the mirror got since the last one.
    """
    from headwater.spark.jobs.audit import check_audit, run_audit
    from headwater.spark.jobs.plots import plot_audit

    with running.failures():
        following = taken(given, plot, out=out, overwrite=overwrite)
        origin = _source({name: given[name] for name in given if not name.startswith("mirror_")})
        mirror = _mirror(given)
    if following.follow:
        follow_audit(origin, mirror, not ignore_time, following, master, verbose)
        return
    with running.failures():
        check_audit(origin, mirror, out, overwrite)
    with running.failures(), running.session(master, verbose) as session, running.bar() as report:
        result = run_audit(origin, mirror, out, overwrite, not ignore_time, report, session)
    running.show(
        result,
        as_json,
        *(_interval(each["kind"], each) for each in result.findings),
        f"missing {result.missing:,}, extra {result.extra:,}, different {result.different:,}, "
        f"up to sequence {result.end:,}; behind {result.behind:,}",
        f"origin: planned {result.origin_planned:,}, read {result.origin_read:,}; mirror: planned "
        f"{result.mirror_planned:,}, read {result.mirror_read:,}; expired {result.expired:,}, "
        f"kept {result.kept:,}; {result.ranges_differing:,} of {result.ranges:,} ranges differ; "
        f"{result.seconds:.1f} s",
    )
    running.draw(plot, plot_audit, result.findings, result.as_dict())
    if not result.same:
        sys.exit(1)


def _mirror(given: dict[str, Any]) -> dict[str, str]:
    """The mirror's options. A login is taken over as a whole, or not at all.

    Raises OptionError when nothing tells the mirror from its origin.
    """
    own = {
        name.removeprefix("mirror_"): value
        for name, value in given.items()
        if name.startswith("mirror_") and value is not None
    }
    if not own:
        raise OptionError(
            "which stream is the mirror? Give --mirror-server, --mirror-domain, --mirror-stream "
            "or another login"
        )
    where = {"server", "stream", "domain"}
    shared = ["stream", "partitions", "retry_timeout"]
    if "server" not in own:
        shared.append("server")
        if not set(own) - where:
            shared += [name.removeprefix("mirror_") for name in given if name.startswith("mirror_")]
    if "domain" not in own and "server" in shared:
        shared.append("domain")
    return _source({name: given.get(name) for name in shared} | own)


@run.command()
@source_options(required=True)
@all_of(RANGE)
@all_of(EVENTS)
@click.option("--every", default="", metavar="SPAN", help="Each key is heard that often: 10s, 5m.")
@click.option("--counter", default="", metavar="FIELD", help="JSON field that goes up by one.")
@all_of(CHECKPOINT)
@all_of(FINDINGS)
@all_of(PLOT)
@all_of(RUNNING)
def gaps(
    by: str,
    message_time: bool,
    every: str,
    counter: str,
    out: str | None,
    overwrite: bool,
    plot: str | None,
    master: str,
    verbose: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Find what is missing between messages.

    Without --every and --counter, the stream's own sequences are expected to have no holes.
    Exit code 1 says that there are gaps. With --follow each gap is a line of JSON as soon as it
    is found.
    """
    from headwater.spark.jobs.events import EventKind
    from headwater.spark.jobs.gaps import Expectation, check_gaps, run_gaps
    from headwater.spark.jobs.plots import plot_gaps

    with running.failures():
        following = taken(given, plot, out=out, overwrite=overwrite)
        source = _source(given)
        expected = Expectation(EventKind(by, message_time, counter), every)
        if following.follow:
            follow_gaps(source, expected, following, master, verbose)
            return
        check_gaps(source, expected, out, overwrite)
    with running.failures(), running.session(master, verbose) as session, running.bar() as report:
        result = run_gaps(source, expected, out, overwrite, report, session)
    running.show(
        result,
        as_json,
        *(_gap(each) for each in result.findings),
        f"{result.missing:,} missing in {result.gaps:,} gaps of {result.keys:,} keys; "
        f"restarts {result.restarts:,}, repeats {result.repeats:,}, unknown {result.unknown:,}",
        _proof(result),
    )
    running.draw(plot, plot_gaps, result.findings, result.as_dict())
    _check_known(result, by, counter)
    if result.gaps or (result.lost and not given["allow_loss"]):
        sys.exit(1)


@run.command()
@source_options(required=True)
@all_of(RANGE)
@all_of(EVENTS)
@click.option("--value", required=True, metavar="FIELD", help="JSON field of the number to judge.")
@click.option(
    "--threshold", type=float, default=THRESHOLD, show_default=True,
    help="Deviations from what was usual that make a value strange.",
)
@click.option(
    "--quiet", type=click.IntRange(1), default=QUIET, show_default=True,
    help="For so many values of a key, only what is stranger still is told.",
)
@all_of(CHECKPOINT)
@all_of(FINDINGS)
@all_of(PLOT)
@all_of(RUNNING)
def anomaly(
    by: str,
    message_time: bool,
    value: str,
    threshold: float,
    quiet: int,
    out: str | None,
    overwrite: bool,
    plot: str | None,
    master: str,
    verbose: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Find values of a device that are unlike its own values before.

    With --follow each finding is a line of JSON as soon as it is found.
    """
    from headwater.spark.jobs.anomaly import Strange, check_anomaly, run_anomaly
    from headwater.spark.jobs.events import EventKind
    from headwater.spark.jobs.plots import plot_anomaly

    with running.failures():
        following = taken(given, plot, out=out, overwrite=overwrite)
        source = _source(given)
        strange = Strange(EventKind(by, message_time, value=value), threshold, quiet=quiet)
        if following.follow:
            follow_anomaly(source, strange, following, master, verbose)
            return
        check_anomaly(source, out, overwrite)
    with running.failures(), running.session(master, verbose) as session, running.bar() as report:
        result = run_anomaly(source, strange, out, overwrite, report, session)
    running.show(
        result,
        as_json,
        *(_strange(each) for each in result.findings),
        f"{result.anomalies:,} strange values among {result.judged:,} of {result.keys:,} keys; "
        f"unknown {result.unknown:,}",
        _proof(result),
    )
    running.draw(plot, plot_anomaly, result.findings, result.as_dict())
    _check_known(result, by, value)
    if result.lost and not given["allow_loss"]:
        sys.exit(1)


def _check_known(result: Any, by: str, field: str) -> None:
    """Fail when no message says what the job looks at: a name may be mistyped. Nothing that was
    found is no good news then."""
    if result.read and result.unknown == result.read:
        number = f" and a number in the JSON field {field!r}" if field else ""
        raise click.ClickException(
            f"none of the {result.read:,} messages has a key by {by!r}{number}: check the names"
        )


def _strange(found: dict[str, Any]) -> str:
    moment = datetime.fromtimestamp(found["t_us"] / 1e6, UTC).isoformat(timespec="milliseconds")
    return (
        f"{moment} {found['key']}: {found['value']:g}, "
        f"{found['strangeness']:.1f} deviations from what was usual"
    )


@run.command()
@source_options(required=True)
@all_of(RANGE)
@all_of(EVENTS)
@click.option("--silence", required=True, metavar="SPAN", help="Offline is longer: 30s, 5m, 1h.")
@all_of(CHECKPOINT)
@all_of(FINDINGS)
@all_of(PLOT)
@all_of(RUNNING)
def uptime(
    by: str,
    message_time: bool,
    silence: str,
    out: str | None,
    overwrite: bool,
    plot: str | None,
    master: str,
    verbose: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Find when each device was offline: when it said nothing for longer than --silence.

    Any message counts; --subject names the heartbeats. A device is looked at from its first
    message to the newest message of all. With --follow, a line of JSON tells of each device that
    falls silent, and one of its return.
    """
    from headwater.spark.jobs.events import EventKind
    from headwater.spark.jobs.plots import plot_uptime
    from headwater.spark.jobs.uptime import check_uptime, run_uptime

    with running.failures():
        following = taken(given, plot, out=out, overwrite=overwrite)
        source = _source(given)
        kind = EventKind(by, message_time)
        if following.follow:
            follow_uptime(source, silence, kind, following, master, verbose)
            return
        check_uptime(source, silence, out, overwrite)
    with running.failures(), running.session(master, verbose) as session, running.bar() as report:
        result = run_uptime(source, silence, kind, out, overwrite, report, session)
    running.show(
        result,
        as_json,
        *(
            f"{each['key']} offline {_times(each)}{', still' if each['open'] else ''}"
            for each in result.findings
        ),
        *(f"{each['key']} uptime {each['uptime']:.4%}" for each in result.devices),
        f"{result.intervals:,} intervals of {result.keys:,} devices, "
        f"{result.offline_us / 1e6:,.1f} s in all; offline now {result.offline_now:,}; "
        f"unknown {result.unknown:,}",
        _proof(result),
    )
    running.draw(plot, plot_uptime, result.findings, result.as_dict())
    _check_known(result, by, "")
    if result.lost and not given["allow_loss"]:
        sys.exit(1)


@run.command()
@source_options(required=True)
@all_of(RANGE)
@click.option("--out", required=True, metavar="DIR", help="Folder that all executors see.")
@click.option(
    "--format", "form", default="parquet", show_default=True,
    type=click.Choice(["parquet", "json", "csv"]),
)
@click.option("--resume", is_flag=True, help="Go on with the export in that folder.")
@all_of(FOLLOWING)
@all_of(PAUSE)
@all_of(PLOT)
@all_of(RUNNING)
def export(
    out: str,
    form: str,
    resume: bool,
    plot: str | None,
    master: str,
    verbose: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Write messages to files.

    The range is fixed at the first run. An export that was interrupted goes on with --resume;
    nothing that is there is replaced. With --follow, each round exports what came in since the
    last one.
    """
    from headwater.spark.jobs.export import check_export, run_export
    from headwater.spark.jobs.plots import plot_export

    with running.failures():
        following = taken(given, plot, resume=resume)
    source = _source(given)
    if following.follow:
        follow_export(source, out, form, following, master, verbose, given["allow_loss"])
        return
    with running.failures():
        check_export(source, out, form, resume)
    with running.failures(), running.session(master, verbose) as session, running.bar() as report:
        result = run_export(source, out, form, resume, report, session)
    running.show(
        result,
        as_json,
        f"{result.rows:,} rows in {result.pieces:,} pieces in {result.path}, "
        f"{result.resumed:,} of them from earlier runs",
        f"planned {result.planned:,}, written {result.rows:,}, read back {result.read_back:,}, "
        f"expired {result.expired:,}, lost {result.lost:,}, {result.seconds:.1f} s",
    )
    running.draw(plot, plot_export, result)
    if result.rows != result.read_back or (result.lost and not given["allow_loss"]):
        sys.exit(1)


@run.command()
@source_options(required=True)
@click.option("--from", "folder", required=True, metavar="DIR", help="Folder of an export.")
@click.option("--prefix", default="", metavar="TEXT", help="Put before each subject: history.")
@click.option("--retry-timeout", metavar="SECONDS", help="Patience with a server that is away.")
@all_of(FOLLOWING)
@all_of(PAUSE)
@all_of(PLOT)
@all_of(RUNNING)
def backfill(
    folder: str,
    prefix: str,
    plot: str | None,
    master: str,
    verbose: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Write an export into a stream, in order, each message once.

    --stream is the target. A backfill that was interrupted goes on when it is run again. All
    executors must see the folder. With --follow, each round writes what an export that follows
    has got since the last one.
    """
    from headwater.spark.jobs.backfill import check_backfill, run_backfill
    from headwater.spark.jobs.plots import plot_backfill

    with running.failures():
        following = taken(given, plot)
    target = _source(given)
    if following.follow:
        follow_backfill(target, folder, prefix, following, master, verbose)
        return
    with running.failures():
        check_backfill(target, folder, prefix)
    with running.failures(), running.session(master, verbose) as session, running.bar() as report:
        result = run_backfill(target, folder, prefix, report, session)
    running.show(
        result,
        as_json,
        f"{result.rows:,} messages into {result.stream} in {result.steps:,} steps",
        f"planned {result.planned:,}, written {result.rows:,}, there already {result.already:,}, "
        f"by earlier runs {result.earlier:,}, {result.seconds:.1f} s",
    )
    running.draw(plot, plot_backfill, result)
    if not result.whole:
        sys.exit(1)


def _proof(result: "AnomalyResult | GapsResult | UptimeResult") -> str:
    return (
        f"planned {result.planned:,}, read {result.read:,}, expired {result.expired:,}, "
        f"lost {result.lost:,}, {result.seconds:.1f} s"
    )


def _gap(found: dict[str, Any]) -> str:
    if "from_us" in found:
        return f"{found['key']} missing {found['missing']:,}: {_times(found)}"
    return _interval(f"{found['key']} missing", found)


def _times(found: dict[str, Any]) -> str:
    texts = (
        datetime.fromtimestamp(found[name] / 1e6, UTC).isoformat(timespec="milliseconds")
        for name in ("from_us", "until_us")
    )
    return " to ".join(texts)


def _interval(what: str, found: dict[str, Any]) -> str:
    first, last = found["first"], found["last"]
    return f"{what} {first:,}" if first == last else f"{what} {first:,} to {last:,}"


@spark.command()
@source_options(required=False)
@click.option("--no-job", is_flag=True, help="Do not start Spark.")
@click.option("--master", default="local[1]", show_default=True, help="Whose executors to check.")
@click.option(
    "--wait", type=click.FloatRange(0), default=60.0, show_default=True, metavar="SECONDS",
    help="Patience until an executor appears.",
)
@CONF
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(no_job: bool, master: str, wait: float, as_json: bool, **given: Any) -> None:
    """Check what a job needs, here and on each executor of --master.

    With --server, and --stream, also whether all of them reach the servers and the stream.
    """
    from headwater.spark.cluster.executor_checks import Cluster
    from headwater.spark.doctor import check_all

    checks = []
    cluster = None if no_job else Cluster(master, running.settings(), wait)
    source = _source(given) or None
    for check in check_all(cluster, source):
        checks.append(check)
        if not as_json:
            mark = click.style("ok  ", fg="green") if check.ok else click.style("FAIL", fg="red")
            click.echo(f"{mark} {check.title}: {check.detail}")
    well = all(check.ok for check in checks)
    if as_json:
        findings = [vars(check) for check in checks]
        click.echo(json.dumps({"ok": well, "checks": findings}))
    sys.exit(0 if well else 1)


def _source(given: dict[str, Any]) -> dict[str, str]:
    return {SOURCE[name]: str(value) for name, value in given.items() if value is not None}
