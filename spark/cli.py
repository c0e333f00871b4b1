"""`headwater spark`: run a job, or check the installation.

Exit codes: 0 done, 1 failed, 2 wrong usage. With `--json` standard output is one JSON object
and nothing else; progress and messages go to standard error.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from headwater.spark.errors import OptionError, SourceError
from headwater.spark.jobs.detector import QUIET, THRESHOLD
from headwater.spark.options import DEFAULT_SERVER

if TYPE_CHECKING:
    from headwater.spark.jobs.anomaly import AnomalyResult, Strange
    from headwater.spark.jobs.gaps import GapsResult
    from headwater.spark.jobs.job import JobResult
    from headwater.spark.jobs.uptime import UptimeResult
    from headwater.spark.jobs.watch import JobProgress

#: Command-line options that are passed on to the source, with the source's name for them.
_SOURCE = {
    "server": "servers",
    "stream": "stream",
    "domain": "domain",
    "subject": "subjects",
    "starting": "starting",
    "ending": "ending",
    "partitions": "partitions",
    "allow_expired": "allowExpired",
    "allow_loss": "failOnDataLoss",
    "retry_timeout": "retryTimeout",
    "user": "user",
    "password_file": "passwordFile",
    "password_env": "passwordEnv",
    "token_file": "tokenFile",
    "token_env": "tokenEnv",
    "creds": "credentialsFile",
    "nkey": "nkeySeedFile",
    "tls_ca": "tlsCaFile",
    "tls_cert": "tlsCertFile",
    "tls_key": "tlsKeyFile",
}


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _all_of(options: list[Decorator]) -> Decorator:
    """One decorator for several options, which `--help` shows in this order."""

    def apply(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


def source_options(required: bool) -> Decorator:
    """The options that say where the data is and who we are."""
    return _all_of(
        [
            click.option("-s", "--server", metavar="URL[,URL]", help=f"Default {DEFAULT_SERVER}."),
            click.option("--stream", required=required, help="Stream, or several with commas."),
            *_access(""),
        ]
    )


def _access(prefix: str) -> list[Decorator]:
    """Domain, credentials and TLS of one side."""
    user = "User name; the password comes from a file or variable."
    return [
        click.option(f"--{prefix}domain", help="JetStream domain."),
        click.option(f"--{prefix}user", help=user),
        click.option(f"--{prefix}password-file", metavar="FILE"),
        click.option(f"--{prefix}password-env", metavar="NAME"),
        click.option(f"--{prefix}token-file", metavar="FILE"),
        click.option(f"--{prefix}token-env", metavar="NAME"),
        click.option(f"--{prefix}creds", metavar="FILE", help="Credentials file."),
        click.option(f"--{prefix}nkey", metavar="FILE", help="NKey seed file."),
        click.option(f"--{prefix}tls-ca", metavar="FILE"),
        click.option(f"--{prefix}tls-cert", metavar="FILE"),
        click.option(f"--{prefix}tls-key", metavar="FILE"),
    ]


def mirror_options() -> Decorator:
    """The same for a second stream. What is not given is the first one's, all in all."""
    return _all_of(
        [
            click.option("--mirror-server", metavar="URL[,URL]", help="Default: the origin's."),
            click.option("--mirror-stream", help="Default: the origin's name."),
            *_access("mirror-"),
        ]
    )


#: Which messages are read, with how many tasks.
_SLICE: list[Decorator] = [
    click.option("--subject", metavar="FILTER[,FILTER]", help="Read these subjects only."),
    click.option("--starting", help="earliest, or a sequence."),
    click.option("--partitions", type=click.IntRange(1, 10_000), help="Tasks per stream."),
    click.option("--retry-timeout", metavar="SECONDS", help="Patience with a server that is away."),
]
_RANGE: list[Decorator] = [
    *_SLICE,
    click.option("--ending", help="latest, or a sequence."),
    click.option(
        "--allow-expired/--no-allow-expired",
        default=None,
        help="Go on when limits of the stream remove messages before they are read. "
        "The default is to go on, but not with an explicit --starting.",
    ),
    click.option("--allow-loss", flag_value="false", help="Read what is left after a purge."),
]
_RUNNING: list[Decorator] = [
    click.option("--master", default="local[*]", show_default=True, help="Spark master."),
    click.option("--verbose", is_flag=True, help="Show what Spark prints."),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
]
#: Whose a message is, and when it was.
_EVENTS: list[Decorator] = [
    click.option(
        "--by", default="subject", show_default=True, metavar="KEY",
        help="What a key is: subject, token:N of the subject (from 1), or json:FIELD.",
    ),
    click.option(
        "--message-time", is_flag=True,
        help="Times are the JSON fields t_us or ts, not when the stream took the message in.",
    ),
]
#: Where a job that finds something puts all of it.
_FINDINGS: list[Decorator] = [
    click.option("--out", metavar="DIR", help="Write all findings there, as Parquet."),
    click.option("--overwrite", is_flag=True, help="Replace what is in the folder."),
]


@click.group()
def spark() -> None:
    """Analytics over streams with Apache Spark."""


@spark.group()
def run() -> None:
    """Run a ready job."""


@run.command()
@source_options(required=True)
@_all_of(_RANGE)
@click.option("--out", required=True, metavar="DIR", help="Folder for the Parquet files.")
@click.option("--window", default="1m", show_default=True, help="Window: 10s, 1m, 2h, 1d.")
@click.option("--overwrite", is_flag=True, help="Replace what is in the folder.")
@_all_of(_RUNNING)
def rollup(
    out: str,
    window: str,
    overwrite: bool,
    master: str,
    verbose: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Roll telemetry up per device, metric and window, into Parquet.

    Every message of the range is counted exactly once; the result says so in numbers.
    """
    from headwater.spark.jobs.rollup import check_rollup, run_rollup

    source = _source(given)
    with _failures():
        # A mistake must not cost the start of a JVM.
        check_rollup(source, out, window, overwrite)
    with _failures(), _session(master, verbose) as session, _bar() as report:
        result = run_rollup(source, out, window, overwrite, report, session)
    _show(
        result,
        as_json,
        f"{result.rows:,} rows into {result.groups:,} groups in {result.path}",
        f"planned {result.planned:,}, read {result.read:,}, duplicates {result.duplicates:,}, "
        f"expired {result.expired:,}, lost {result.lost:,}, "
        f"no telemetry {result.invalid:,}, repeated ids {result.duplicate_ids:,}, "
        f"{result.seconds:.1f} s",
    )
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
@_all_of(_SLICE)
@click.option("--ignore-time", is_flag=True, help="Times may differ: a copy was published anew.")
@_all_of(_FINDINGS)
@_all_of(_RUNNING)
def audit(
    ignore_time: bool,
    out: str | None,
    overwrite: bool,
    master: str,
    verbose: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Compare a mirror with its origin: missing, extra and different messages.

    --stream is the origin. Both streams have to number their messages alike. Exit code 1 says
    that the mirror has something else than the origin. That it is behind is a number only.
    """
    from headwater.spark.jobs.audit import check_audit, run_audit

    origin = _source({name: given[name] for name in given if not name.startswith("mirror_")})
    mirror = _mirror(given)
    with _failures():
        check_audit(origin, mirror, out, overwrite)
    with _failures(), _session(master, verbose) as session, _bar() as report:
        result = run_audit(origin, mirror, out, overwrite, not ignore_time, report, session)
    _show(
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
    if not result.same:
        sys.exit(1)


def _mirror(given: dict[str, Any]) -> dict[str, str]:
    """The mirror's options. A login is taken over as a whole, or not at all."""
    own = {
        name.removeprefix("mirror_"): value
        for name, value in given.items()
        if name.startswith("mirror_") and value is not None
    }
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
@_all_of(_RANGE)
@_all_of(_EVENTS)
@click.option("--every", default="", metavar="SPAN", help="Each key is heard that often: 10s, 5m.")
@click.option("--counter", default="", metavar="FIELD", help="JSON field that goes up by one.")
@_all_of(_FINDINGS)
@_all_of(_RUNNING)
def gaps(
    by: str,
    message_time: bool,
    every: str,
    counter: str,
    out: str | None,
    overwrite: bool,
    master: str,
    verbose: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Find what is missing between messages.

    Without --every and --counter, the stream's own sequences are expected to have no holes.
    Exit code 1 says that there are gaps.
    """
    from headwater.spark.jobs.events import EventKind
    from headwater.spark.jobs.gaps import Expectation, check_gaps, run_gaps

    source = _source(given)
    with _failures():
        expected = Expectation(EventKind(by, message_time, counter), every)
        check_gaps(source, expected, out, overwrite)
    with _failures(), _session(master, verbose) as session, _bar() as report:
        result = run_gaps(source, expected, out, overwrite, report, session)
    _show(
        result,
        as_json,
        *(_gap(each) for each in result.findings),
        f"{result.missing:,} missing in {result.gaps:,} gaps of {result.keys:,} keys; "
        f"restarts {result.restarts:,}, repeats {result.repeats:,}, unknown {result.unknown:,}",
        _proof(result),
    )
    if result.gaps or (result.lost and not given["allow_loss"]):
        sys.exit(1)


@run.command()
@source_options(required=True)
@_all_of(_RANGE)
@_all_of(_EVENTS)
@click.option("--value", required=True, metavar="FIELD", help="JSON field of the number to judge.")
@click.option(
    "--threshold", type=float, default=THRESHOLD, show_default=True,
    help="Deviations from what was usual that make a value strange.",
)
@click.option(
    "--quiet", type=click.IntRange(1), default=QUIET, show_default=True,
    help="For so many values of a key, only what is stranger still is told.",
)
@click.option("--follow", is_flag=True, help="Judge messages as they come, until interrupted.")
@click.option(
    "--checkpoint", metavar="DIR",
    help="With --follow: where the state is kept, so that a later run goes on.",
)
@_all_of(_FINDINGS)
@_all_of(_RUNNING)
def anomaly(
    by: str,
    message_time: bool,
    value: str,
    threshold: float,
    quiet: int,
    follow: bool,
    checkpoint: str | None,
    out: str | None,
    overwrite: bool,
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

    source = _source(given)
    with _failures():
        strange = Strange(EventKind(by, message_time, value=value), threshold, quiet=quiet)
        check_anomaly(source, out, overwrite)
        _check_follow(follow, checkpoint, out)
    if follow:
        _follow_anomaly(source, strange, checkpoint, master, verbose)
        return
    with _failures(), _session(master, verbose) as session, _bar() as report:
        result = run_anomaly(source, strange, out, overwrite, report, session)
    _show(
        result,
        as_json,
        *(_strange(each) for each in result.findings),
        f"{result.anomalies:,} strange values among {result.judged:,} of {result.keys:,} keys; "
        f"unknown {result.unknown:,}",
        _proof(result),
    )
    if result.lost and not given["allow_loss"]:
        sys.exit(1)


def _check_follow(follow: bool, checkpoint: str | None, out: str | None) -> None:
    """Raise OptionError for options that do not go together."""
    if checkpoint and not follow:
        raise OptionError("--checkpoint is for --follow")
    if follow and out:
        raise OptionError("--follow prints findings: leave --out away")


def _follow_anomaly(
    source: dict[str, str], strange: "Strange", checkpoint: str | None, master: str, verbose: bool
) -> None:
    """Print findings until somebody interrupts."""
    from headwater.spark.jobs.anomaly import follow_anomaly

    with tempfile.TemporaryDirectory() as own, _failures(), _session(master, verbose) as session:
        query = follow_anomaly(
            source, strange, lambda row: click.echo(json.dumps(row)), checkpoint or own, session
        )
        click.echo("following; Ctrl-C ends it", err=True)
        try:
            query.awaitTermination()
        finally:
            query.stop()


def _strange(found: dict[str, Any]) -> str:
    moment = datetime.fromtimestamp(found["t_us"] / 1e6, UTC).isoformat(timespec="milliseconds")
    return (
        f"{moment} {found['key']}: {found['value']:g}, "
        f"{found['strangeness']:.1f} deviations from what was usual"
    )


@run.command()
@source_options(required=True)
@_all_of(_RANGE)
@_all_of(_EVENTS)
@click.option("--silence", required=True, metavar="SPAN", help="Offline is longer: 30s, 5m, 1h.")
@_all_of(_FINDINGS)
@_all_of(_RUNNING)
def uptime(
    by: str,
    message_time: bool,
    silence: str,
    out: str | None,
    overwrite: bool,
    master: str,
    verbose: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Find when each device was offline: when it said nothing for longer than --silence.

    Any message counts; --subject names the heartbeats. A device is looked at from its first
    message to the newest message of all.
    """
    from headwater.spark.jobs.events import EventKind
    from headwater.spark.jobs.uptime import check_uptime, run_uptime

    source = _source(given)
    with _failures():
        kind = EventKind(by, message_time)
        check_uptime(source, silence, out, overwrite)
    with _failures(), _session(master, verbose) as session, _bar() as report:
        result = run_uptime(source, silence, kind, out, overwrite, report, session)
    _show(
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
    if result.lost and not given["allow_loss"]:
        sys.exit(1)


@run.command()
@source_options(required=True)
@_all_of(_RANGE)
@click.option("--out", required=True, metavar="DIR", help="Folder that all executors see.")
@click.option(
    "--format", "form", default="parquet", show_default=True,
    type=click.Choice(["parquet", "json", "csv"]),
)
@click.option("--resume", is_flag=True, help="Go on with the export in that folder.")
@_all_of(_RUNNING)
def export(
    out: str, form: str, resume: bool, master: str, verbose: bool, as_json: bool, **given: Any
) -> None:
    """Write messages to files.

    The range is fixed at the first run. An export that was interrupted goes on with --resume;
    nothing that is there is replaced.
    """
    from headwater.spark.jobs.export import check_export, run_export

    source = _source(given)
    with _failures():
        check_export(source, out, form, resume)
    with _failures(), _session(master, verbose) as session, _bar() as report:
        result = run_export(source, out, form, resume, report, session)
    _show(
        result,
        as_json,
        f"{result.rows:,} rows in {result.pieces:,} pieces in {result.path}, "
        f"{result.resumed:,} of them from earlier runs",
        f"planned {result.planned:,}, written {result.rows:,}, read back {result.read_back:,}, "
        f"expired {result.expired:,}, lost {result.lost:,}, {result.seconds:.1f} s",
    )
    if result.rows != result.read_back or (result.lost and not given["allow_loss"]):
        sys.exit(1)


@run.command()
@source_options(required=True)
@click.option("--from", "folder", required=True, metavar="DIR", help="Folder of an export.")
@click.option("--prefix", default="", metavar="TEXT", help="Put before each subject: history.")
@click.option("--retry-timeout", metavar="SECONDS", help="Patience with a server that is away.")
@_all_of(_RUNNING)
def backfill(
    folder: str, prefix: str, master: str, verbose: bool, as_json: bool, **given: Any
) -> None:
    """Write an export into a stream, in order, each message once.

    --stream is the target. A backfill that was interrupted goes on when it is run again. All
    executors must see the folder.
    """
    from headwater.spark.jobs.backfill import check_backfill, run_backfill

    target = _source(given)
    with _failures():
        check_backfill(target, folder, prefix)
    with _failures(), _session(master, verbose) as session, _bar() as report:
        result = run_backfill(target, folder, prefix, report, session)
    _show(
        result,
        as_json,
        f"{result.rows:,} messages into {result.stream} in {result.steps:,} steps",
        f"planned {result.planned:,}, written {result.rows:,}, there already {result.already:,}, "
        f"by earlier runs {result.earlier:,}, {result.seconds:.1f} s",
    )
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
@click.option("--no-job", is_flag=True, help="Do not run the small Spark job.")
@click.option("--master", default="local[1]", show_default=True, help="Where the job runs.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(no_job: bool, master: str, as_json: bool, **given: Any) -> None:
    """Check Python, packages, Java, the reader and, with --stream, a stream."""
    from headwater.spark.doctor import check_all

    checks = []
    source = _source(given) if given.get("stream") else None
    for check in check_all(not no_job, source, master):
        checks.append(check)
        if not as_json:
            mark = click.style("ok  ", fg="green") if check.ok else click.style("FAIL", fg="red")
            click.echo(f"{mark} {check.name}: {check.detail}")
    well = all(check.ok for check in checks)
    if as_json:
        findings = [vars(check) for check in checks]
        click.echo(json.dumps({"ok": well, "checks": findings}))
    sys.exit(0 if well else 1)


def _source(given: dict[str, Any]) -> dict[str, str]:
    return {_SOURCE[name]: str(value) for name, value in given.items() if value is not None}


@contextmanager
def _failures() -> Iterator[None]:
    """Turn errors into one line and an exit code."""
    try:
        yield
    except OptionError as error:
        raise click.UsageError(str(error)) from error
    except (SourceError, FileExistsError) as error:
        raise click.ClickException(_with_notes(str(error), error)) from error
    except KeyboardInterrupt as error:
        raise click.Abort from error
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        raise click.ClickException(_with_notes(spark_reason(str(error)), error)) from error


def _with_notes(text: str, error: BaseException) -> str:
    return "\n".join([text, *getattr(error, "__notes__", [])])


def spark_reason(text: str) -> str:
    """The line of a Spark error that says what happened: the last one of the Python part.

    Spark wraps the source's own error in pages of stack traces of two languages.
    """
    marks = [line.strip() for line in text.splitlines() if "headwater.spark." in line]
    errors = [line for line in marks if line.startswith("headwater.spark.") and ": " in line]
    if errors:
        return errors[-1].partition(": ")[2]
    return text.strip().splitlines()[0] if text.strip() else "Spark failed without a message"


@contextmanager
def _session(master: str, verbose: bool) -> Iterator[Any]:
    """A Spark session whose chatter is in a log file, unless it is wanted."""
    from headwater.spark.session import build_session, spark_log

    click.echo("starting Spark ...", err=True)
    with nullcontext() if verbose else spark_log() as log:
        session = build_session("headwater spark run", master, log=log)
        try:
            yield session
        finally:
            session.stop()


@contextmanager
def _bar() -> Iterator[Callable[["JobProgress"], None]]:
    """A progress bar with the time left on a terminal, a line every 5 seconds elsewhere."""
    if not sys.stderr.isatty():
        yield _line_reporter(5.0)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} tasks"),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[str, Any] = {}

        def report(progress: "JobProgress") -> None:
            if progress.phase not in tasks:
                tasks[progress.phase] = bar.add_task(progress.phase, total=progress.total)
            bar.update(tasks[progress.phase], completed=progress.done, total=progress.total)

        yield report


def _line_reporter(every: float) -> Callable[["JobProgress"], None]:
    last = [time.monotonic()]

    def report(progress: "JobProgress") -> None:
        if time.monotonic() - last[0] >= every:
            last[0] = time.monotonic()
            click.echo(f"{progress.phase}: {progress.done}/{progress.total} tasks", err=True)

    return report


def _show(result: "JobResult", as_json: bool, *lines: str) -> None:
    """The result as one JSON object, or as lines of text."""
    click.echo(json.dumps(result.as_dict()) if as_json else "\n".join(lines))
