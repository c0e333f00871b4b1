"""`python -m bench.links`: copies across a leaf link, ours and nats-server's in turn.

Figures are medians of the rounds. "hub ours, edge theirs" and the other way round are mixed pairs.
Behind each row stands what is required of it, and `!` behind each figure that does not reach it.
"""

import asyncio
import statistics
import sys

import click

from bench import machine
from bench.links.required import required
from bench.links.rows import MIXED, ROWS, Amounts
from bench.servers import ServerFailed, end_on_sigterm

PAIRS = (("ours", "ours"), ("theirs", "theirs"))
MIXED_PAIRS = (("ours", "theirs"), ("theirs", "ours"))
SIZES = {
    "tiny": Amounts(400, 128, 4, 200, 1.0, 4, 200, 3),
    "small": Amounts(200_000, 128, 100, 50_000, 30.0, 40, 10_000, 12),
    "normal": Amounts(),
}


@click.command()
@click.option("--size", type=click.Choice(list(SIZES)), default="normal", show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--only", multiple=True, type=click.Choice(list(ROWS)), help="These rows alone.")
def main(size: str, rounds: int, only: tuple[str, ...]) -> None:
    """Measure links beside nats-server."""
    end_on_sigterm()
    print(machine.look().line(), flush=True)
    failed = False
    for name in only or ROWS:
        found: dict[str, dict[tuple[str, str], list[float]]] = {}
        pairs = PAIRS + MIXED_PAIRS if name in MIXED else PAIRS
        for _ in range(rounds):
            for pair in pairs:
                try:
                    figures = asyncio.run(ROWS[name](*pair, SIZES[size]))
                except (ServerFailed, RuntimeError, TimeoutError, OSError) as error:
                    failed = True
                    print(f"{name}, hub {pair[0]}, edge {pair[1]}: {error}", flush=True)
                    continue
                for title, value in figures.items():
                    found.setdefault(title, {}).setdefault(pair, []).append(value)
        for title, by_pair in found.items():
            tell(title, {pair: statistics.median(rows) for pair, rows in by_pair.items()})
    sys.exit(1 if failed else 0)


def tell(title: str, medians: dict[tuple[str, str], float]) -> None:
    """One figure of all pairs, with its ratio to nats-server at both ends and what is required."""
    theirs = medians.get(("theirs", "theirs"), 0.0)
    asked = required(title)
    cells = []
    for (hub, edge), value in medians.items():
        who = hub if hub == edge else f"hub {hub}, edge {edge}"
        ratio = f" ({value / theirs:.2f})" if theirs and hub + edge != "theirstheirs" else ""
        missed = asked is not None and asked.met((hub, edge), value, theirs) is False
        cells.append(f"{who} {value:,.2f}{ratio}{' !' if missed else ''}")
    if asked is not None:
        cells.append(f"required: {asked.told()}")
    print(f"{title:46} {'   '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
