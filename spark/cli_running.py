"""What commands of `headwater spark` do around a job: a session, progress, errors, the result."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from headwater.spark.cli_options import SETTINGS
from headwater.spark.errors import OptionError, SourceError
from headwater.spark.reasons import spark_reason

if TYPE_CHECKING:
    from headwater.spark.jobs.job import JobResult
    from headwater.spark.jobs.watch import JobProgress


@contextmanager
def failures() -> Iterator[None]:
    """Turn errors into one line and an exit code."""
    try:
        yield
    except OptionError as error:
        raise click.UsageError(str(error)) from error
    except (SourceError, FileExistsError) as error:
        raise click.ClickException(_with_notes(str(error), error)) from error
    except KeyboardInterrupt as error:
        raise click.Abort from error
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise click.ClickException(f"{error.filename or 'a file'}: {error.strerror}") from error
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        raise click.ClickException(_with_notes(spark_reason(str(error)), error)) from error


def _with_notes(text: str, error: BaseException) -> str:
    return "\n".join([text, *getattr(error, "__notes__", [])])


def settings() -> dict[str, str]:
    """What `--conf` says."""
    given: dict[str, str] = click.get_current_context().meta.get(SETTINGS, {})
    return given


@contextmanager
def session(master: str, verbose: bool) -> Iterator[Any]:
    """A Spark session whose chatter is in a log file, unless it is wanted."""
    from headwater.spark.cluster.masters import check_master
    from headwater.spark.session import build_session, spark_log

    check_master(master)
    click.echo("starting Spark ...", err=True)
    with nullcontext() if verbose else spark_log() as log:
        session = build_session("headwater spark run", master, settings(), log)
        try:
            yield session
        finally:
            session.stop()


@contextmanager
def bar() -> Iterator[Callable[["JobProgress"], None]]:
    """A progress bar with the time left on a terminal, a line every 5 seconds elsewhere.

    A phase counts rows where their number is planned, and tasks elsewhere.
    """
    if not sys.stderr.isatty():
        yield _line_reporter(5.0)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,}/{task.total:,} {task.fields[unit]}"),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[str, Any] = {}

        def report(progress: "JobProgress") -> None:
            if progress.phase not in tasks:
                tasks[progress.phase] = bar.add_task(
                    progress.phase, total=progress.total, unit=progress.unit
                )
            bar.update(tasks[progress.phase], completed=progress.done, total=progress.total)

        yield report


def _line_reporter(every: float) -> Callable[["JobProgress"], None]:
    began = time.monotonic()
    last, since = [began], {"": began}

    def report(progress: "JobProgress") -> None:
        now = time.monotonic()
        start = since.setdefault(progress.phase, now)
        if now - last[0] >= every:
            last[0] = now
            left = ""
            if progress.done:
                seconds = (now - start) * (progress.total - progress.done) / progress.done
                left = f", about {seconds:,.0f} s left"
            click.echo(
                f"{progress.phase}: {progress.done:,}/{progress.total:,} {progress.unit}{left}",
                err=True,
            )

    return report


def draw(path: str | None, plot: Callable[..., None], *what: object) -> None:
    """The picture of a result, in `path` if that is wanted."""
    if path:
        with failures():
            plot(*what, path)


def show(result: "JobResult", as_json: bool, *lines: str) -> None:
    """The result as one JSON object, or as lines of text."""
    click.echo(json.dumps(result.as_dict()) if as_json else "\n".join(lines))
