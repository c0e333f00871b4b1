"""What `--follow` does on the command line: findings as lines of JSON, totals at the end."""

import json
import logging
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from headwater.spark import cli_running as running
from headwater.spark.errors import OptionError
from headwater.spark.jobs.job import span_micros

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from headwater.spark.jobs.anomaly import Strange
    from headwater.spark.jobs.backfill import BackfillResult
    from headwater.spark.jobs.events import EventKind
    from headwater.spark.jobs.export import ExportResult
    from headwater.spark.jobs.following.follower import Step
    from headwater.spark.jobs.following.notebook import Notebook
    from headwater.spark.jobs.following.picture import DrawFindings, Picture
    from headwater.spark.jobs.gaps import Expectation
    from headwater.spark.jobs.plots import Findings

#: Seconds between two lines of progress.
EVERY = 5


@dataclass(frozen=True)
class Following:
    """What the options of a job say of it: whether it goes on, until when, and its folder."""

    follow: bool
    once: bool
    checkpoint: str | None
    pause: str
    plot: str | None

    @property
    def picture(self) -> "Picture":
        """What --plot asks for."""
        from headwater.spark.jobs.following.picture import Picture

        return Picture(self.plot, lambda text: click.echo(text, err=True))

    def check(self, given: Mapping[str, Any]) -> None:
        """Raise OptionError for options that do not go together."""
        for name in ("once", "checkpoint"):
            if getattr(self, name) and not self.follow:
                raise OptionError(f"--{name} is for --follow")
        for name, why in _NOT_FOLLOWING.items():
            if self.follow and given.get(name) not in (None, False):
                raise OptionError(f"--follow {why}: leave --{name.replace('_', '-')} away")

    @contextmanager
    def folder(self) -> Iterator[str]:
        """Where the job keeps its state; without --checkpoint, as long as it runs."""
        if self.checkpoint:
            yield self.checkpoint
            return
        with tempfile.TemporaryDirectory(prefix="headwater-follow-") as own:
            yield own


_NOT_FOLLOWING = {
    "ending": "has no end",
    "ending_timestamp": "has no end",
    "overwrite": "replaces nothing",
    "out": "tells each finding as a line",
    "resume": "goes on by itself",
    "count_ids": "reads everything once",
}


def taken(given: dict[str, Any], plot: str | None, **others: Any) -> Following:
    """The options of following, which are taken out of `given`. Raises OptionError when they do
    not go together with `given` and the `others`, and for a plot that cannot be drawn."""
    from headwater.spark.jobs.plots import check_plot

    check_plot(plot)
    found = Following(
        given.pop("follow"),
        given.pop("once"),
        given.pop("checkpoint", None),
        given.pop("pause", ""),
        plot,
    )
    found.check({**given, **others})
    return found


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the block, and are no failure; nor is what the block ends with then: a
    call into the JVM that is cut off fails in some way of its own."""
    told: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        told.append(number)
        # The bridge to the JVM would log each call that is cut off.
        logging.disable(logging.ERROR)
        before = old[signal.Signals(number)]
        if callable(before):
            before(number, frame)
        raise KeyboardInterrupt

    old = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in old:
        signal.signal(number, end)
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if not told and not isinstance(error, KeyboardInterrupt):
            raise
        click.echo("ended", err=True)
    finally:
        for number, before in old.items():
            signal.signal(number, before)
        logging.disable(logging.NOTSET)


def watch(
    query: "StreamingQuery", notebook: "Notebook", drawn: Callable[[bool], None] | None = None
) -> None:
    """Wait for the end of a query; tell where it is. Raises what the query ended with. `drawn` is
    called now and then, and with True at the end."""
    try:
        with until_interrupted():
            while not query.awaitTermination(EVERY):
                click.echo(_progress(query, notebook), err=True)
                if drawn is not None:
                    drawn(False)
    finally:
        query.stop()
        if drawn is not None:
            drawn(True)
        print_totals(notebook)


def print_line(finding: Mapping[str, Any]) -> None:
    """One finding, as a line of JSON."""
    click.echo(json.dumps(finding, default=str))


def print_totals(notebook: "Notebook") -> None:
    """The last line: what all runs in this folder did together."""
    print_line({"totals": {**_sums(notebook), "batches": notebook.batch + 1}})


def _sums(notebook: "Notebook") -> dict[str, int]:
    return {**notebook.totals, **_numbers(notebook.memo)}


def _numbers(memo: Mapping[str, Any]) -> dict[str, int]:
    return {name: value for name, value in memo.items() if isinstance(value, int)}


def _progress(query: "StreamingQuery", notebook: "Notebook") -> str:
    totals = ", ".join(f"{name} {count:,}" for name, count in notebook.totals.items())
    behind = _behind(query)
    if behind is None:
        return totals or "nothing yet: the first batch is under way"
    return f"{totals or 'nothing yet'}; behind {behind:,} sequences"


def _behind(query: "StreamingQuery") -> int | None:
    """Sequences between the query's offset and where the streams end, as its progress says; None
    before its first batch is done."""
    last = query.lastProgress
    if last is None or not last["sources"]:
        return None
    source = last["sources"][0]
    ends, at = (_sequences(source[name]) for name in ("latestOffset", "endOffset"))
    return sum(max(0, end - at.get(stream, 0)) for stream, end in ends.items())


def _sequences(offset: Any) -> dict[str, int]:
    found = json.loads(offset) if isinstance(offset, str) else offset
    streams = (found or {}).get("streams", {})
    return {stream: int(place["sequence"]) for stream, place in streams.items()}


def follow_rollup(
    source: dict[str, str],
    out: str,
    window: str,
    lateness: str,
    following: Following,
    master: str,
    verbose: bool,
) -> None:
    from headwater.spark.jobs.following.rollup import RollupStep, rollup_notebook
    from headwater.spark.jobs.plots import plot_rollup
    from headwater.spark.jobs.rollup import FORMAT

    notebook = rollup_notebook(source, out, window, lateness)
    step = RollupStep(window, lateness)

    def draw(session: Any, picture: "Picture", last: bool) -> None:
        if notebook.totals.get("groups"):
            picture.draw(lambda path: plot_rollup(session, out, path), notebook.batch, last)

    follow({**source, **FORMAT}, step, notebook, following, master, verbose, draw)


def follow_gaps(
    source: dict[str, str],
    expected: "Expectation",
    following: Following,
    master: str,
    verbose: bool,
) -> None:
    from headwater.spark.jobs.events import event_options
    from headwater.spark.jobs.following.gaps import GapsStep, gaps_notebook
    from headwater.spark.jobs.plots import plot_gaps

    with following.folder() as folder:
        notebook = gaps_notebook(source, expected, folder)
        options = {**source, **event_options(expected.kind)}
        draw = _drawing(plot_gaps, notebook)
        follow(options, GapsStep(expected), notebook, following, master, verbose, draw)
    if notebook.totals.get("gaps"):
        sys.exit(1)


def follow_anomaly(
    source: dict[str, str], strange: "Strange", following: Following, master: str, verbose: bool
) -> None:
    from headwater.spark.jobs.events import event_options
    from headwater.spark.jobs.following.anomaly import AnomalyStep, anomaly_notebook
    from headwater.spark.jobs.plots import plot_anomaly

    with following.folder() as folder:
        notebook = anomaly_notebook(source, strange, folder)
        options = {**source, **event_options(strange.kind)}
        draw = _drawing(plot_anomaly, notebook)
        follow(options, AnomalyStep(strange), notebook, following, master, verbose, draw)


def follow_uptime(
    source: dict[str, str],
    silence: str,
    kind: "EventKind",
    following: Following,
    master: str,
    verbose: bool,
) -> None:
    from headwater.spark.jobs.events import event_options
    from headwater.spark.jobs.following.picture import uptime_numbers
    from headwater.spark.jobs.following.uptime import UptimeStep, uptime_notebook
    from headwater.spark.jobs.plots import plot_uptime

    with following.folder() as folder:
        notebook = uptime_notebook(source, silence, kind, folder)
        options = {**source, **event_options(kind)}

        def drawn(findings: "Findings", numbers: Mapping[str, Any], path: str) -> None:
            until = numbers.get("until_us", 0)
            plot_uptime(*uptime_numbers(findings, span_micros(silence, "--silence"), until), path)

        draw = _drawing(drawn, notebook)
        follow(options, UptimeStep(silence, kind), notebook, following, master, verbose, draw)


def follow(
    options: dict[str, str],
    step: "Step",
    notebook: "Notebook",
    following: Following,
    master: str,
    verbose: bool,
    draw: Callable[[Any, "Picture", bool], None],
) -> None:
    """Tell findings until somebody interrupts; totals at the end. `draw` draws what there is: of a
    session, into a picture, and whether that is the last time."""
    from headwater.spark.jobs.following.follower import Follower

    picture = following.picture

    def found(finding: dict[str, Any]) -> None:
        print_line(finding)
        picture.add(finding)

    with running.failures(), running.session(master, verbose) as session:
        follower = Follower(notebook, step, found, session)
        query = follower.start(options, until_now=following.once)
        click.echo("following; Ctrl-C ends it", err=True)
        watch(query, notebook, lambda last: draw(session, picture, last))


def _drawing(
    plot: "DrawFindings", notebook: "Notebook"
) -> Callable[[Any, "Picture", bool], None]:
    """How `follow` draws a job whose picture is made of its findings."""

    def draw(session: Any, picture: "Picture", last: bool) -> None:
        picture.draw_findings(plot, _sums(notebook), last)

    return draw


def follow_audit(
    origin: dict[str, str],
    mirror: dict[str, str],
    with_time: bool,
    following: Following,
    master: str,
    verbose: bool,
) -> None:
    from headwater.spark.jobs.following.rounds import audit_notebook, audit_round, rounds
    from headwater.spark.jobs.plots import plot_audit

    picture = following.picture

    def found(finding: dict[str, Any]) -> None:
        print_line(finding)
        picture.add(finding)

    def drawn(last: bool) -> None:
        end = int(notebook.memo.get("next", 1)) - 1
        picture.draw_findings(plot_audit, {**notebook.totals, "end": end}, last)

    with running.failures(), following.folder() as folder:
        pause = span_micros(following.pause, "--pause") / 1e6
        notebook = audit_notebook(origin, mirror, folder, with_time)
        with running.session(master, verbose) as session, running.bar() as report:
            try:
                with until_interrupted():
                    for _ in rounds(pause, following.once):
                        audit_round(
                            origin, mirror, notebook, found, session, with_time, report
                        )
                        drawn(False)
            finally:
                drawn(True)
                print_totals(notebook)
    if any(notebook.totals.get(name) for name in ("missing", "extra", "different")):
        sys.exit(1)


def follow_export(
    source: dict[str, str],
    out: str,
    form: str,
    following: Following,
    master: str,
    verbose: bool,
    loss_allowed: str | None,
) -> None:
    from headwater.spark.jobs.following.rounds import check_export_rounds, export_round, rounds
    from headwater.spark.jobs.plots import plot_export

    result = None
    picture = following.picture

    def drawn(found: "ExportResult", last: bool) -> None:
        picture.draw(lambda path: plot_export(found, path), found.pieces, last)

    with running.failures():
        pause = span_micros(following.pause, "--pause") / 1e6
        check_export_rounds(source, out, form)
        with running.session(master, verbose) as session, running.bar() as report:
            try:
                with until_interrupted():
                    for _ in rounds(pause, following.once):
                        result = export_round(source, out, form, session, report)
                        drawn(result, last=False)
            finally:
                if result is not None:
                    drawn(result, last=True)
                    print_line({"totals": result.as_dict()})
    if result is not None and (
        result.rows != result.read_back or (result.lost and not loss_allowed)
    ):
        sys.exit(1)


def follow_backfill(
    target: dict[str, str],
    folder: str,
    prefix: str,
    following: Following,
    master: str,
    verbose: bool,
) -> None:
    from headwater.spark.jobs.backfill import check_backfill
    from headwater.spark.jobs.following.rounds import backfill_round, rounds
    from headwater.spark.jobs.plots import plot_backfill

    result = None
    picture = following.picture

    def drawn(found: "BackfillResult", last: bool) -> None:
        picture.draw(lambda path: plot_backfill(found, path), found.rows, last)

    with running.failures():
        pause = span_micros(following.pause, "--pause") / 1e6
        check_backfill(target, folder, prefix, follow=True)
        with running.session(master, verbose) as session, running.bar() as report:
            try:
                with until_interrupted():
                    for _ in rounds(pause, following.once):
                        result = backfill_round(target, folder, prefix, result, session, report)
                        drawn(result, last=False)
            finally:
                if result is not None:
                    drawn(result, last=True)
                    print_line({"totals": result.as_dict()})
    if result is not None and not result.whole:
        sys.exit(1)
