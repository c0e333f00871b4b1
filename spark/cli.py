"""`headwater spark`: run a job, or check the installation.

Exit codes: 0 done, 1 failed, 2 wrong usage. With `--json` standard output is one JSON object
and nothing else; progress and messages go to standard error.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from headwater.spark.errors import OptionError, SourceError

if TYPE_CHECKING:
    from headwater.spark.jobs.rollup import RollupResult
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


def source_options(required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options that say where the data is and who we are."""
    options = [
        click.option("-s", "--server", metavar="URL[,URL]", help="Default nats://127.0.0.1:4222."),
        click.option("--stream", required=required, help="Stream, or several with commas."),
        click.option("--domain", help="JetStream domain."),
        click.option("--user", help="User name; the password comes from a file or variable."),
        click.option("--password-file", metavar="FILE"),
        click.option("--password-env", metavar="NAME"),
        click.option("--token-file", metavar="FILE"),
        click.option("--token-env", metavar="NAME"),
        click.option("--creds", metavar="FILE", help="Credentials file."),
        click.option("--nkey", metavar="FILE", help="NKey seed file."),
        click.option("--tls-ca", metavar="FILE"),
        click.option("--tls-cert", metavar="FILE"),
        click.option("--tls-key", metavar="FILE"),
    ]

    def apply(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


@click.group()
def spark() -> None:
    """Analytics over streams with Apache Spark."""


@spark.group()
def run() -> None:
    """Run a ready job."""


@run.command()
@source_options(required=True)
@click.option("--subject", metavar="FILTER[,FILTER]", help="Read these subjects only.")
@click.option("--starting", help="earliest, or a sequence.")
@click.option("--ending", help="latest, or a sequence.")
@click.option("--partitions", type=click.IntRange(1, 10_000), help="Tasks per stream.")
@click.option(
    "--allow-expired/--no-allow-expired",
    default=None,
    help="Go on when limits of the stream remove messages before they are read. "
    "The default is to go on, but not with an explicit --starting.",
)
@click.option("--allow-loss", flag_value="false", help="Read what is left after a purge.")
@click.option("--retry-timeout", metavar="SECONDS", help="Patience with a server that is away.")
@click.option("--out", required=True, metavar="DIR", help="Folder for the Parquet files.")
@click.option("--window", default="1m", show_default=True, help="Window: 10s, 1m, 2h, 1d.")
@click.option("--overwrite", is_flag=True, help="Replace what is in the folder.")
@click.option("--master", default="local[*]", show_default=True, help="Spark master.")
@click.option("--verbose", is_flag=True, help="Show what Spark prints.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
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
    _show(result, as_json)
    if result.read and not result.rows:
        raise click.ClickException(
            f"none of the {result.read:,} messages is telemetry: a message needs the JSON fields "
            "device, metric and value"
        )
    if result.duplicates or (result.lost and not given["allow_loss"]):
        sys.exit(1)


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


def _show(result: "RollupResult", as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(result.as_dict()))
        return
    click.echo(f"{result.rows:,} rows into {result.groups:,} groups in {result.path}")
    click.echo(
        f"planned {result.planned:,}, read {result.read:,}, duplicates {result.duplicates:,}, "
        f"expired {result.expired:,}, lost {result.lost:,}, "
        f"no telemetry {result.invalid:,}, repeated ids {result.duplicate_ids:,}, "
        f"{result.seconds:.1f} s"
    )
