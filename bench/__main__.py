"""`python -m bench`: this server beside the real nats-server, pattern by pattern."""

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bench import report as reports
from bench.all_patterns import PATTERNS
from bench.compare import Comparison, Plan, Report, Step, timed
from bench.patterns import Pattern
from bench.servers import Recipe, ServerFailed, anchor, anchor_synced, end_on_sigterm, headwater

SCALES = {"tiny": 0.002, "small": 0.1, "normal": 1.0, "large": 5.0}
EXIT_BELOW = 1
EXIT_FAILED = 2


def chosen(only: tuple[str, ...], sizes: tuple[int, ...]) -> tuple[Pattern, ...]:
    """Patterns whose name contains one of `only` and whose message size is one of `sizes`."""
    picked = tuple(
        pattern
        for pattern in PATTERNS
        if (not only or any(part in pattern.name for part in only))
        and (not sizes or pattern.size in sizes)
    )
    if not picked:
        names = ", ".join(pattern.name for pattern in PATTERNS)
        raise click.UsageError(f"no such pattern; there are: {names}")
    return picked


def parse_floors(values: tuple[str, ...]) -> dict[str, float]:
    """`1.0` for all patterns, `NAME=2.5` for one; `""` is the key for all."""
    floors = {}
    for value in values:
        name, _, text = value.rpartition("=")
        if name and name not in {pattern.name for pattern in PATTERNS}:
            raise click.UsageError(f"--floor {value}: no such pattern")
        try:
            floors[name] = float(text)
        except ValueError:
            raise click.UsageError(f"--floor {value}: not a number") from None
    return floors


def result(step: Step) -> str:
    """What a finished step gave, in a few words."""
    if step.figure is None:
        return step.error.splitlines()[0]
    if step.pattern.latency:
        return f"{step.figure.latency[step.pattern.part]:.1f} {step.pattern.unit}"
    return f"{reports.number(step.figure.rate)}/s"


def run_plain(plan: Plan) -> Report:
    """One line per finished measurement on stderr."""

    def show(step: Step, left: float) -> None:
        if step.figure is not None or step.error:
            click.echo(
                f"[{step.done}/{step.total}] round {step.round} {step.pattern.name} "
                f"{step.server}: {result(step)} (ETA {left:.0f} s)",
                err=True,
            )

    return Comparison(plan, timed(show)).run()


def run_rich(plan: Plan, console: Console) -> Report:
    """A progress bar with the time remaining."""
    columns = (
        TextColumn("round {task.fields[round]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None, round=1)

        def show(step: Step) -> None:
            progress.update(
                task,
                total=step.total,
                completed=step.done,
                round=step.round,
                description=f"{step.pattern.name} {step.server}",
            )

        return Comparison(plan, show).run()


def show_list() -> None:
    """Names, sizes and titles of the patterns."""
    for pattern in PATTERNS:
        click.echo(f"{pattern.name:<16} {pattern.messages:>9,} messages  {pattern.title}")


def finish(found: Report, as_json: bool, floors: dict[str, float]) -> int:
    """Print the report to stdout and its judgement to stderr; the exit code."""
    console = Console()
    if as_json:
        click.echo(reports.document(found))
    elif console.is_terminal:
        console.print(reports.table(found, floors, console.width))
    else:
        click.echo(reports.plain(found))
    for error in found.failed():
        click.echo(f"failed: {error}", err=True)
    low = found.below(floors)
    for name in low:
        click.echo(f"below the floor: {name}", err=True)
    if found.failed():
        return EXIT_FAILED
    return EXIT_BELOW if low else 0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 1000))
@click.option("--size", default="normal", show_default=True, type=click.Choice(list(SCALES)))
@click.option("--messages", type=click.IntRange(1), help="Messages per run, instead of --size.")
@click.option(
    "--payload", multiple=True, type=int, help="Only patterns with this payload, in bytes."
)
@click.option("--seconds", default=10.0, show_default=True, help="Cap on one measurement.")
@click.option("--timeout", default=15.0, show_default=True, help="Silence that fails a run, s.")
@click.option("--only", multiple=True, metavar="PATTERN", help="Patterns whose name has this.")
@click.option("--ours", metavar="COMMAND", help="Launch this in place of `headwater serve`.")
@click.option("--theirs", metavar="COMMAND", help="Launch this in place of `nats-server`.")
@click.option(
    "--dir",
    "parent",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where stores lie; a real disk, or file patterns mean nothing.",
)
@click.option(
    "--floor",
    multiple=True,
    metavar="RATIO|PATTERN=RATIO",
    help="Exit with 1 when a ratio is below.",
)
@click.option("--json", "as_json", is_flag=True, help="The report as JSON on stdout.")
@click.option("--list", "listing", is_flag=True, help="List the patterns and end.")
def main(
    rounds: int,
    size: str,
    messages: int | None,
    payload: tuple[int, ...],
    seconds: float,
    timeout: float,
    only: tuple[str, ...],
    ours: str | None,
    theirs: str | None,
    parent: Path | None,
    floor: tuple[str, ...],
    as_json: bool,
    listing: bool,
) -> None:
    """Measure Headwater beside the real nats-server, alternating, and print ratios of medians.

    A ratio above 1 means that ours is better. A command given to --ours or --theirs may contain
    {port} and {dir}; without them it gets nats-server's flags.

    Exit codes: 0 measured, 1 below a --floor, 2 something could not be measured.
    """
    if listing:
        show_list()
        return
    end_on_sigterm()
    floors = parse_floors(floor)
    picked = chosen(only, payload)
    try:
        plan = Plan(
            *sides(ours, theirs),
            patterns=picked,
            synced=None if theirs else anchor_synced(),
            rounds=rounds,
            scale=SCALES[size],
            messages=messages,
            seconds=seconds,
            timeout=timeout,
            parent=parent,
        )
        console = Console(stderr=True)
        found = run_rich(plan, console) if console.is_terminal else run_plain(plan)
    except ServerFailed as error:
        click.echo(str(error), err=True)
        sys.exit(EXIT_FAILED)
    sys.exit(finish(found, as_json, floors))


def sides(ours: str | None, theirs: str | None) -> tuple[Recipe, Recipe]:
    """The two servers, with commands replaced where given; names are made to differ."""
    mine, other = headwater(ours), anchor(theirs)
    if mine.name == other.name:
        mine = Recipe(f"{mine.name} (ours)", mine.command)
    return mine, other


if __name__ == "__main__":
    main(prog_name="python -m bench")
