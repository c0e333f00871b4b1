"""`python -m bench.faults`: fault scripts against this server and the real one, side by side."""

import sys
from collections.abc import Callable
from pathlib import Path

import click

from bench.faults import clocks, crash, filling, flips
from bench.faults.tally import Tally, table
from bench.faults.trial import Script
from bench.servers import Recipe, ServerFailed, anchor, anchor_synced, end_on_sigterm, headwater
from headwater.edge.wire.message import WireError

SCRIPTS: dict[str, Callable[[Script], Tally]] = {
    "kills": crash.run,
    "flips": flips.run,
    "filling": filling.run,
    "clocks": clocks.run,
}
SERVERS: dict[str, Callable[[], Recipe]] = {
    "headwater": headwater,
    "real": anchor,
    "real-synced": anchor_synced,
}
ROUNDS = {"kills": 20, "flips": 100, "filling": 4, "clocks": 2}
OURS_ONLY = ("clocks",)
"""nats-server is a static program: no library can set the clock that it sees."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("scripts", nargs=-1, type=click.Choice(list(SCRIPTS)))
@click.option(
    "--server", "servers", multiple=True, type=click.Choice(list(SERVERS)), help="Default: all."
)
@click.option("--rounds", type=click.IntRange(1), help="Default: each script's own.")
@click.option("--seed", default=1, show_default=True)
@click.option(
    "--dir",
    "parent",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where temporary stores are made.",
)
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for every row instead.")
@click.option("--quiet", is_flag=True, help="Say nothing before the end.")
def main(
    scripts: tuple[str, ...],
    servers: tuple[str, ...],
    rounds: int | None,
    seed: int,
    parent: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run fault SCRIPTS (default: all) and print what became of every promise.

    Exit codes: 0 this server kept every promise, 1 it did not, 2 something could not be driven.
    """
    end_on_sigterm()
    tallies = []

    def tell(line: str) -> None:
        if not quiet:
            click.echo(line, err=True)

    try:
        for script in scripts or SCRIPTS:
            for server in servers or SERVERS:
                if script in OURS_ONLY and server != "headwater":
                    tell(f"{script}, {server}: cannot be done")
                    continue
                recipe = SERVERS[server]()
                tell(f"{script}, {recipe.name}")
                plan = Script(recipe, rounds or ROUNDS[script], seed, parent, tell)
                tallies.append(SCRIPTS[script](plan))
    except (ServerFailed, WireError, OSError) as error:
        click.echo(f"not driven: {error}", err=True)
        sys.exit(2)
    for tally in tallies:
        for line in tally.told_findings():
            tell(line)
    click.echo("\n".join(tally.as_json() for tally in tallies) if as_json else table(tallies))
    ours = headwater().name
    sys.exit(any(tally.broken for tally in tallies if tally.server == ours))


if __name__ == "__main__":
    main(prog_name="python -m bench.faults")
